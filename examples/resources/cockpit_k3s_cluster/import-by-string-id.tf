import {
  to = cockpit_k3s_cluster.prod
  id = "k8s-prod"
}
