data "cockpit_kubeconfig" "prod" {
  cluster_id = cockpit_k3s_cluster.prod.id
}

provider "kubernetes" {
  host                   = data.cockpit_kubeconfig.prod.endpoint
  cluster_ca_certificate = data.cockpit_kubeconfig.prod.cluster_ca_certificate
  client_certificate     = data.cockpit_kubeconfig.prod.client_certificate
  client_key             = data.cockpit_kubeconfig.prod.client_key
}

# terraform output -raw kubeconfig > kubeconfig.yaml
output "kubeconfig" {
  value     = data.cockpit_kubeconfig.prod.raw
  sensitive = true
}
