package hypervisor

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	clusterID  = "8a5b2f0e-5c1d-4e0b-9d57-3d1f6f3f9a01"
	serverUUID = "3f0c9f5e-7a76-4d0c-8a55-0f3f7a1b2c3d"
)

// serverSpec is the first server of a cluster on a hypervisor.
func serverSpec(hypervisor string) machine.Spec {
	r := record.Record{
		ClusterID: clusterID, ClusterName: "k8s-test", Pool: record.ServerPool, Role: record.Server, Ordinal: 1, Phase: record.Creating,
		Shape:   record.Shape{VCPUs: 2, MemoryMiB: 2048, DiskGiB: 8, StoragePool: "vms", Clone: record.Overlay},
		Cluster: &record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "lan"},
	}
	s := machine.Spec{Hypervisor: hypervisor, UUID: serverUUID, MAC: "52:54:00:00:00:11", Network: "lan", Record: r}
	s.Record.Volumes = []record.Volume{
		{Pool: "vms", Name: machine.RootVolume(s.Name(), s.UUID)},
		{Pool: "vms", Name: machine.SeedVolume(s.Name(), s.UUID)},
	}
	return s
}

// machineOf is the VM of a Spec.
func machineOf(s machine.Spec) machine.Machine {
	return machine.Machine{Hypervisor: s.Hypervisor, Name: s.Name(), UUID: s.UUID, MAC: s.MAC, Power: machine.Stopped, Record: s.Record}
}

// observe surveys a fleet and describes every VM of it.
func observe(t *testing.T, f *Fleet) machine.Observation {
	t.Helper()
	o := machine.Observation{Survey: f.Survey(t.Context())}
	for _, name := range slices.Sorted(maps.Keys(o.Hosts)) {
		var uuids []string
		for _, d := range o.Hosts[name].Domains {
			uuids = append(uuids, d.UUID)
		}
		machines, unreadable, err := f.Describe(t.Context(), name, uuids)
		if err != nil {
			o.Unreachable[name] = err
		}
		o.Machines, o.Unreadable = append(o.Machines, machines...), append(o.Unreadable, unreadable...)
	}
	return o
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (go test -update writes it anew):\n%s", file, got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks what an error is and that its text holds each of the words.
func wantError(t *testing.T, err, target error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("error %q is not %q", err, target)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}

// await looks until what is done, or the time of a boot has passed.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > bootTime {
			t.Fatalf("no %s within %s", what, bootTime)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%s after %s", what, time.Since(began).Round(time.Second))
}
