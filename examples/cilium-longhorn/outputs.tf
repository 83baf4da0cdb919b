output "addons" {
  description = "Version and status of each add-on."
  value       = { for name, addon in cockpit_k3s_cluster.this.addons : name => "${coalesce(addon.version, "-")} ${addon.status}" }
}

output "kubeconfig" {
  description = "The administrator's kubeconfig."
  value       = data.cockpit_kubeconfig.this.raw
  sensitive   = true
}
