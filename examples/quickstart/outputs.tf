output "api_url" {
  description = "URL of the Kubernetes API."
  value       = cockpit_k3s_cluster.this.api_url
}

output "nodes" {
  description = "State and address of each node by name."
  value = {
    for name, node in merge(cockpit_k3s_cluster.this.nodes, cockpit_k3s_node_pool.workers.nodes) :
    name => "${node.state} ${coalesce(node.ip, "-")}"
  }
}

output "kubeconfig" {
  description = "The administrator's kubeconfig."
  value       = data.cockpit_kubeconfig.this.raw
  sensitive   = true
}
