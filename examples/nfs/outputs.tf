output "export" {
  description = "Where the volumes of the class nfs stand."
  value       = "${cockpit_k3s_cluster.this.csi.nfs.server}:${cockpit_k3s_cluster.this.csi.nfs.path}"
}
