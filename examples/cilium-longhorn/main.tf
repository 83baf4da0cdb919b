# Cilium with Hubble as the network, and Longhorn as storage on the data disks of three workers: what runs there outlives any one of them.
#
#   terraform apply
#   (umask 077; terraform output -raw kubeconfig > kubeconfig.yaml)
#   kubectl --kubeconfig kubeconfig.yaml get storageclasses

terraform {
  required_providers {
    cockpit = {
      source = "cockpit-k3s/cockpit"
    }
  }
}

provider "cockpit" {
  hypervisors = var.hypervisors
  template    = var.template # with open-iscsi, and without multipathd
}

resource "cockpit_k3s_cluster" "this" {
  name        = "longhorn"
  k3s_version = "v1.36.2+k3s1"
  bridge      = "br0"

  cni = {
    plugin = "cilium"
    hubble = true
  }
  csi = {
    longhorn = { replica_count = 3 }
  }
}

resource "cockpit_k3s_node_pool" "storage" {
  cluster_id = cockpit_k3s_cluster.this.id
  name       = "storage"
  node_count = 3
  memory_gib = 8
  data_disk  = { size_gib = 200, mount_path = "/var/lib/longhorn" }
}

data "cockpit_kubeconfig" "this" {
  cluster_id = cockpit_k3s_cluster.this.id
}
