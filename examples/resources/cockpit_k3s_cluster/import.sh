# By name, or by id.
terraform import cockpit_k3s_cluster.prod k8s-prod
