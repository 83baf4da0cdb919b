resource "cockpit_k3s_node_pool" "workers" {
  cluster_id   = cockpit_k3s_cluster.prod.id
  name         = "workers"
  node_count   = 3
  vcpus        = 4
  memory_gib   = 16
  disk_gib     = 80
  storage_pool = "fast-ssd"
}

# One node on each of two hypervisors.
resource "cockpit_k3s_node_pool" "database" {
  cluster_id = cockpit_k3s_cluster.prod.id
  name       = "database"
  node_count = 2
  placement  = { strategy = "manual", hosts = ["hv-a", "hv-b"] }
}
