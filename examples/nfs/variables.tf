variable "hypervisor_uri" {
  description = "libvirt URI of the hypervisor."
  type        = string
  default     = "qemu:///system"
}

variable "nfs_pool" {
  description = "Storage pool of type netfs on the hypervisor, whose definition tells the NFS server and its export."
  type        = string
  default     = "nfs-ds"
}
