// Package cluster is the one place that sequences: it observes what exists, plans an ordered list of typed steps from
// what is wanted, and runs it.
//
// Create, update, repair after a crash and delete are the same path with different wishes. The planner is a pure
// function of an observation; every step is idempotent, so a plan made after any failure goes on where the last one
// stopped. The package sees the world through the small interfaces of ports.go only.
package cluster
