resource "cockpit_k3s_node_pool" "workers" {
  cluster_id   = cockpit_k3s_cluster.prod.id
  name         = "workers"
  node_count   = 3
  vcpus        = 4
  memory_gib   = 16
  disk_gib     = 80
  storage_pool = "fast-ssd"
}

# One node on each of two hypervisors, for databases alone.
resource "cockpit_k3s_node_pool" "database" {
  cluster_id = cockpit_k3s_cluster.prod.id
  name       = "database"
  node_count = 2
  placement  = { strategy = "manual", hosts = ["hv-a", "hv-b"] }

  labels    = { tier = "database" }
  taints    = [{ key = "dedicated", value = "database", effect = "NoSchedule" }]
  data_disk = { size_gib = 200, storage_pool = "hdd", mount_path = "/srv/data" }

  # Pods get half an hour to leave a node, and one node changes at a time, without an extra one meanwhile.
  drain            = { timeout = "30m" }
  upgrade_settings = { max_surge = 0, max_unavailable = 1 }
}
