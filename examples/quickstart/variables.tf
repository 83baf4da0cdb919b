variable "hypervisor_uri" {
  description = "libvirt URI of the hypervisor."
  type        = string
  default     = "qemu:///system"
}

variable "template" {
  description = "The golden image: a qcow2 volume with cloud-init and qemu-guest-agent."
  type        = object({ pool = string, volume = string })
  default     = { pool = "default", volume = "debian-12.qcow2" }
}

variable "install_script_url" {
  description = "URL of the k3s install script; null for https://get.k3s.io."
  type        = string
  default     = null
}

variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "quickstart"
}

variable "k3s_version" {
  description = "Release of k3s."
  type        = string
  default     = "v1.36.2+k3s1"
}

variable "network" {
  description = "libvirt network of the nodes."
  type        = string
  default     = "default"
}

variable "server" {
  description = "Size of the server."
  type = object({
    vcpus        = optional(number)
    memory_gib   = optional(number)
    disk_gib     = optional(number)
    storage_pool = optional(string)
  })
  default = {}
}

variable "workers" {
  description = "Number of workers."
  type        = number
  default     = 2
}

variable "worker" {
  description = "Size of each worker."
  type = object({
    vcpus        = optional(number)
    memory_gib   = optional(number)
    disk_gib     = optional(number)
    storage_pool = optional(string)
  })
  default = {}
}
