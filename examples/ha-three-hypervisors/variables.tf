variable "hypervisors" {
  description = "The hypervisors by name."
  type        = map(object({ uri = string, virt_type = optional(string) }))
  default = {
    hv-a = { uri = "qemu+ssh://root@hv-a.example/system" }
    hv-b = { uri = "qemu+ssh://root@hv-b.example/system" }
    hv-c = { uri = "qemu+ssh://root@hv-c.example/system" }
  }
}

variable "template" {
  description = "The golden image, which has to stand on one of the hypervisors; the others get it from there."
  type        = object({ hypervisor = string, pool = string, volume = string })
  default     = { hypervisor = "hv-a", pool = "default", volume = "debian-12.qcow2" }
}

variable "install_script_url" {
  description = "URL of the k3s install script; null for https://get.k3s.io."
  type        = string
  default     = null
}

variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "ha"
}

variable "k3s_version" {
  description = "Release of k3s."
  type        = string
  default     = "v1.36.2+k3s1"
}

variable "bridge" {
  description = "Bridge of the hypervisors into the LAN on which the nodes reach each other; null where network is set."
  type        = string
  default     = "br0"
}

variable "network" {
  description = "libvirt network in its place, which has to reach over all hypervisors as well."
  type        = string
  default     = null
}

variable "endpoint" {
  description = "host[:port] of a load balancer or virtual address in front of the servers; null where there is none."
  type        = string
  default     = null
}

variable "server" {
  description = "Size of each server."
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
  default     = 3
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
