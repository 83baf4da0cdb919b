import {
  to = cockpit_k3s_node_pool.workers
  id = "k8s-prod/workers"
}
