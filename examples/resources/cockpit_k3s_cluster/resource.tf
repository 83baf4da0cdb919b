resource "cockpit_k3s_cluster" "prod" {
  name        = "k8s-prod"
  k3s_version = "v1.36.2+k3s1"
  bridge      = "br0"
  endpoint    = "k8s-prod.example"

  control_plane = {
    node_count   = 3
    placement    = { strategy = "auto", anti_affinity = "required" }
    vcpus        = 4
    memory_gib   = 8
    disk_gib     = 40
    storage_pool = "ssd"
  }

  ssh_authorized_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXA me@example"]
}
