# A cluster of one server and a pool of workers.
#
#   terraform apply
#   (umask 077; terraform output -raw kubeconfig > kubeconfig.yaml)
#   kubectl --kubeconfig kubeconfig.yaml get nodes

terraform {
  required_providers {
    cockpit = {
      source = "cockpit-k3s/cockpit"
    }
  }
}

provider "cockpit" {
  hypervisors = { main = { uri = var.hypervisor_uri } }
  template    = var.template
  k3s         = { install_script_url = var.install_script_url }
}

resource "cockpit_k3s_cluster" "this" {
  name          = var.name
  k3s_version   = var.k3s_version
  network       = var.network
  control_plane = var.server
}

resource "cockpit_k3s_node_pool" "workers" {
  cluster_id   = cockpit_k3s_cluster.this.id
  name         = "workers"
  node_count   = var.workers
  vcpus        = var.worker.vcpus
  memory_gib   = var.worker.memory_gib
  disk_gib     = var.worker.disk_gib
  storage_pool = var.worker.storage_pool
}

data "cockpit_kubeconfig" "this" {
  cluster_id = cockpit_k3s_cluster.this.id
}
