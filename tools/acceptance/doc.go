// Package acceptance runs the provider against a lab: real Terraform, libvirtd, QEMU, cloud-init, guest agents and
// kube-apiservers. Its tests run inside a lab's LAN ("make testacc", or "lab exec"), and are skipped anywhere else.
package acceptance
