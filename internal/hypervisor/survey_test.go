package hypervisor

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// createTransient makes a domain that is gone when it stops, and pauses it.
func createTransient(t *testing.T, f *Fleet, hypervisor, text string) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		d, err := conn.DomainCreateXML(text, 0)
		if err != nil {
			return err
		}
		return errors.Join(d.Suspend(), d.Free())
	})
}

const transient = `<domain type="test"><name>guest</name><uuid>11111111-2222-3333-4444-555555555555</uuid>
  <memory unit="KiB">98305</memory><currentMemory unit="KiB">65536</currentMemory><vcpu current="2">3</vcpu><os><type>hvm</type></os></domain>`

func TestSurvey(t *testing.T) {
	f := mockFleet(t, "hv-a", "hv-b")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	createTransient(t, f, "hv-a", transient)
	f.hosts["hv-c"] = newHost("hv-c", Config{URI: "qemu+unix:///system?socket=/nonexistent/libvirt-sock"}, 1)

	got := f.Survey(t.Context())
	wantError(t, got.Unreachable["hv-c"], machine.ErrUnreachable, "Failed to connect socket")
	delete(got.Unreachable, "hv-c")
	for _, h := range got.Hosts {
		for i := range h.Domains {
			if d := &h.Domains[i]; d.Name == "legacy" && d.UUID != "" { // the driver makes one up
				d.UUID = ""
			}
		}
	}
	legacy := machine.Domain{Name: "legacy", Power: machine.Running, VCPUs: 1, MemoryMiB: 64}
	want := machine.Survey{
		Hosts: map[string]machine.Host{
			"hv-a": {CPUs: 8, MemoryMiB: 16384, Domains: []machine.Domain{
				{Name: "guest", UUID: "11111111-2222-3333-4444-555555555555", Power: machine.Paused, VCPUs: 2, MemoryMiB: 97},
				{Name: s.Name(), UUID: s.UUID, Power: machine.Stopped, VCPUs: 2, MemoryMiB: 2048},
				legacy,
			}},
			"hv-b": {CPUs: 8, MemoryMiB: 16384, Domains: []machine.Domain{legacy}},
		},
		Unreachable: map[string]error{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCancelledSurvey(t *testing.T) {
	f := mockFleet(t, "hv-a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := f.Survey(ctx)
	if len(got.Hosts) != 0 {
		t.Errorf("surveyed %+v", got.Hosts)
	}
	wantError(t, got.Unreachable["hv-a"], context.Canceled)
}

// The disks that are copied, and guests that do not answer, must not hold up a plan.
func TestLooksPassByOtherCalls(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	h := f.hosts["hv-a"]
	must(t, acquire(t.Context(), h.calls, maxCalls))
	defer h.calls.Release(maxCalls)
	if got := only(t, f); got.UUID != s.UUID {
		t.Errorf("observed %+v", got)
	}
	// A look that comes through is not the only one.
	must(t, acquire(t.Context(), h.looks, maxLooks))
	h.calls.Release(1)
	if got := only(t, f); got.UUID != s.UUID {
		t.Errorf("observed %+v", got)
	}
	h.looks.Release(maxLooks)
	must(t, acquire(t.Context(), h.calls, 1))
}

func TestDomainStats(t *testing.T) {
	f := mockFleet(t, "hv-a")
	must(t, f.Define(t.Context(), serverSpec("hv-a")))
	createTransient(t, f, "hv-a", transient)
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		domains, err := domainStats(conn, powerStats)
		got := map[string]machine.Power{}
		for _, d := range domains {
			got[d.Name] = d.Power
		}
		want := map[string]machine.Power{"legacy": machine.Running, "k8s-test-cp-1": machine.Stopped, "guest": machine.Paused}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		_, lacking := domainStats(conn, sizeStats)
		wantError(t, lacking, errLacking)
		return err
	})
}
