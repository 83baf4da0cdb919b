# Storage on an NFS server beside that on the nodes: volumes of the class nfs can be written from several nodes at once, and outlive all of
# them. Those of the class local-path are fast, and the default.

terraform {
  required_providers {
    cockpit = {
      source = "cockpit-k3s/cockpit"
    }
  }
}

provider "cockpit" {
  hypervisors = { main = { uri = var.hypervisor_uri } }
  template    = { pool = "default", volume = "debian-12.qcow2" } # with nfs-common
}

resource "cockpit_k3s_cluster" "this" {
  name        = "nfs"
  k3s_version = "v1.36.2+k3s1"

  csi = {
    local_path = {}
    nfs = {
      pool        = var.nfs_pool # or server = "192.0.2.5", path = "/export/k3s"
      nfs_version = "4.1"
    }
    default_class = "local-path"
  }
}

resource "cockpit_k3s_node_pool" "workers" {
  cluster_id = cockpit_k3s_cluster.this.id
  name       = "workers"
  node_count = 2
}
