// Package provider is the Terraform side: schemas, models, plans and diagnostics. It neither sequences steps nor speaks
// libvirt or Kubernetes, and it is the only importer of terraform-plugin-framework.
package provider
