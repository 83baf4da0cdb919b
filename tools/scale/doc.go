// Package scale measures what a refresh of large clusters costs: the engine and the hypervisor side of the provider, over
// libvirt's test driver. Its benchmarks need no lab ("make bench", or "go test -bench .").
package scale
