# Three servers, each on a hypervisor of its own, and workers spread over the same hypervisors. Any one hypervisor may fail.
#
#   terraform plan     # shows which node goes where, and what that takes of each hypervisor
#   terraform apply
#   (umask 077; terraform output -raw kubeconfig > kubeconfig.yaml)

terraform {
  required_providers {
    cockpit = {
      source = "cockpit-k3s/cockpit"
    }
  }
}

provider "cockpit" {
  hypervisors = var.hypervisors
  template    = var.template
  k3s         = { install_script_url = var.install_script_url }
}

resource "cockpit_k3s_cluster" "this" {
  name        = var.name
  k3s_version = var.k3s_version
  bridge      = var.bridge
  network     = var.network
  endpoint    = var.endpoint

  control_plane = {
    node_count   = 3
    placement    = { anti_affinity = "required" } # the default; "preferred" makes do with fewer hypervisors
    vcpus        = var.server.vcpus
    memory_gib   = var.server.memory_gib
    disk_gib     = var.server.disk_gib
    storage_pool = var.server.storage_pool
  }
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
