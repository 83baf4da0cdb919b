terraform {
  required_providers {
    cockpit = {
      source = "cockpit-k3s/cockpit"
    }
  }
}

provider "cockpit" {
  hypervisors = {
    hv-a = { uri = "qemu+ssh://root@hv-a.example/system" }
    hv-b = { uri = "qemu+ssh://root@hv-b.example/system", cpu_overcommit = 2 }
    hv-c = { uri = "qemu+ssh://root@hv-c.example/system", schedulable = false }
  }
  template = {
    hypervisor = "hv-a"
    pool       = "default"
    volume     = "debian-12.qcow2"
  }
}
