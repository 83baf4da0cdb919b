resource "cockpit_k3s_cluster" "prod" {
  name        = "k8s-prod"
  k3s_version = "v1.36.2+k3s1"
  network     = "default"

  control_plane = {
    vcpus        = 4
    memory_gib   = 8
    disk_gib     = 40
    storage_pool = "ssd"
  }

  ssh_authorized_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXA me@example"]
}
