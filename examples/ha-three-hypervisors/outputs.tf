output "api_url" {
  description = "URL of the Kubernetes API."
  value       = cockpit_k3s_cluster.this.api_url
}

output "assignment" {
  description = "The hypervisor of each node."
  value       = merge(cockpit_k3s_cluster.this.assignment, cockpit_k3s_node_pool.workers.assignment)
}

output "footprint" {
  description = "What the cluster takes of each hypervisor."
  value = {
    for name in keys(var.hypervisors) : name => {
      for what in ["vcpus", "memory_gib", "disk_gib"] : what => sum([
        for footprint in [cockpit_k3s_cluster.this.footprint, cockpit_k3s_node_pool.workers.footprint] : try(footprint[name][what], 0)
      ])
    }
  }
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
