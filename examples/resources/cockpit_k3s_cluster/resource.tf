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

  # Cilium in place of Flannel, and volumes on an NFS server beside those on the nodes' own disks.
  cni = {
    plugin = "cilium"
    hubble = true
  }
  csi = {
    local_path = {}
    nfs        = { server = "nas.example", path = "/export/k8s-prod", nfs_version = "4.1" }
  }

  ssh_authorized_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXAMPLEkeyEXA me@example"]
}
