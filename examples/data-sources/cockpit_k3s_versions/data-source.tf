data "cockpit_k3s_versions" "current" {
  minor = "1.36"
}

output "newest" {
  value = data.cockpit_k3s_versions.current.latest
}
