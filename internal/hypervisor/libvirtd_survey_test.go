package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// own are the domains of a survey that have the ground's tag in their name.
func (g *ground) own(t *testing.T, s machine.Survey) []machine.Domain {
	t.Helper()
	if len(s.Unreachable) > 0 {
		t.Fatalf("surveyed %+v", s.Unreachable)
	}
	return slices.DeleteFunc(slices.Clone(s.Hosts["hv-a"].Domains), func(d machine.Domain) bool { return !strings.HasPrefix(d.Name, g.tag) })
}

func TestLibvirtdSurvey(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	must(t, f.Define(t.Context(), s))
	const text = `<domain type="qemu"><name>%s</name><uuid>%s</uuid><memory unit="KiB">%d</memory>
		<currentMemory unit="KiB">20480</currentMemory><vcpu current="2">4</vcpu><os><type machine="q35">hvm</type></os></domain>`
	uuids := map[string]string{"-off": uuid.NewString(), "-on": uuid.NewString(), "-transient": uuid.NewString()}
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		off, err := conn.DomainDefineXML(fmt.Sprintf(text, g.tag+"-off", uuids["-off"], 65536))
		if err != nil {
			return err
		}
		t.Cleanup(func() { must(t, errors.Join(off.Undefine(), off.Free())) })
		on, err := conn.DomainDefineXML(fmt.Sprintf(text, g.tag+"-on", uuids["-on"], 65537))
		if err != nil {
			return err
		}
		t.Cleanup(func() { must(t, errors.Join(on.Destroy(), on.Undefine(), on.Free())) })
		transient, err := conn.DomainCreateXML(fmt.Sprintf(text, g.tag+"-transient", uuids["-transient"], 65536), 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { must(t, errors.Join(transient.Destroy(), transient.Free())) })
		return errors.Join(on.Create(), transient.Suspend())
	})
	want := []machine.Domain{
		{Name: s.Name(), UUID: s.UUID, Power: machine.Stopped, VCPUs: 1, MemoryMiB: 64},
		{Name: g.tag + "-off", UUID: uuids["-off"], Power: machine.Stopped, VCPUs: 2, MemoryMiB: 64},
		{Name: g.tag + "-on", UUID: uuids["-on"], Power: machine.Running, VCPUs: 2, MemoryMiB: 65},
		{Name: g.tag + "-transient", UUID: uuids["-transient"], Power: machine.Paused, VCPUs: 2, MemoryMiB: 64},
	}
	slices.SortFunc(want, func(a, b machine.Domain) int { return cmp.Compare(a.Name, b.Name) })

	p.count()
	survey := f.Survey(t.Context())
	if diff := gocmp.Diff(want, g.own(t, survey)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if calls := p.count(); sum(calls) != 2 {
		t.Errorf("it took the calls %v, by procedure", calls)
	}
	if h := survey.Hosts["hv-a"]; h.CPUs < 1 || h.MemoryMiB < 1 {
		t.Errorf("the hypervisor has %d CPUs and %d MiB", h.CPUs, h.MemoryMiB)
	}

	// A VM that is frozen keeps the one list from coming, and is seen all the same.
	p.withhold(procAllDomainStats)
	for range 2 {
		if diff := gocmp.Diff(want, g.own(t, f.Survey(t.Context()))); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if calls := p.count(); calls[procAllDomainStats] != 1 {
		t.Errorf("%d calls wait for the same", calls[procAllDomainStats])
	}
	p.withhold(0)
	p.cut()
	g.own(t, f.Survey(t.Context()))
}

func TestLibvirtdCallsOfASurvey(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	var uuids []string
	grow := func(n int) {
		for len(uuids) < n {
			s := g.spec(t)
			s.Record.Ordinal = len(uuids) + 1
			t.Cleanup(func() { must(t, g.Delete(context.WithoutCancel(t.Context()), machineOf(s))) })
			must(t, f.Define(t.Context(), s))
			uuids = append(uuids, s.UUID)
		}
		p.count()
	}
	var surveys []map[uint32]int
	for _, n := range []int{5, 50} {
		grow(n)
		if got := len(g.own(t, f.Survey(t.Context()))); got != n {
			t.Errorf("%d of %d domains", got, n)
		}
		surveys = append(surveys, p.count())
		machines, unreadable, err := f.Describe(t.Context(), "hv-a", uuids)
		if len(machines) != n || len(unreadable) != 0 || err != nil {
			t.Errorf("%d of %d machines, %v", len(machines), n, err)
		}
		if calls := p.count(); sum(calls) != n+2 {
			t.Errorf("to describe %d VMs took the calls %v, by procedure", n, calls)
		}
	}
	if !maps.Equal(surveys[0], surveys[1]) || sum(surveys[0]) == 0 {
		t.Errorf("a survey of 5 domains takes the calls %v, by procedure, one of 50 takes %v", surveys[0], surveys[1])
	}
}

func sum(calls map[uint32]int) (n int) {
	for _, c := range calls {
		n += c
	}
	return n
}
