# <cluster>/<pool>; the cluster by name, or by id.
terraform import cockpit_k3s_node_pool.workers k8s-prod/workers
