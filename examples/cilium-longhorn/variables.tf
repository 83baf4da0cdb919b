variable "hypervisors" {
  description = "The hypervisors by name."
  type        = map(object({ uri = string }))
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
