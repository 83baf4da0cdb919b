package hypervisor

import (
	"context"
	"encoding/xml"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func TestDescribe(t *testing.T) {
	f := mockFleet(t, "hv-a", "hv-b")
	wanted, other := serverSpec("hv-a"), serverSpec("hv-a")
	wanted.Record.Ordinal = 2
	wanted.Record.Template = record.Template{Pool: "templates", Volume: "golden.qcow2"}
	other.UUID = "11111111-2222-3333-4444-555555555555"
	for _, s := range []machine.Spec{wanted, other} {
		must(t, f.Define(t.Context(), s))
	}
	foreign := ""
	for _, d := range f.Survey(t.Context()).Hosts["hv-a"].Domains {
		if d.Name == "legacy" {
			foreign = d.UUID
		}
	}
	want := machineOf(wanted)
	want.Record.Version = 1 // as it is written
	tests := map[string]struct {
		hypervisor string
		uuids      []string
		want       []machine.Machine
	}{
		"ours":           {"hv-a", []string{wanted.UUID}, []machine.Machine{want}},
		"not ours":       {"hv-a", []string{foreign, wanted.UUID}, []machine.Machine{want}},
		"gone":           {"hv-a", []string{wanted.UUID, "99999999-2222-3333-4444-555555555555"}, []machine.Machine{want}},
		"somewhere else": {"hv-b", []string{wanted.UUID}, nil},
		"none":           {"hv-a", nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, unreadable, err := f.Describe(t.Context(), tt.hypervisor, tt.uuids)
			must(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" || len(unreadable) > 0 {
				t.Errorf("unreadable %v, (-want +got)\n%s", unreadable, diff)
			}
		})
	}
	got, _, err := f.Describe(t.Context(), "hv-a", []string{wanted.UUID, other.UUID})
	must(t, err)
	if len(got) != 2 || got[0].Name != other.Name() || got[1].Name != wanted.Name() {
		t.Errorf("in the order %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = f.Describe(ctx, "hv-a", []string{wanted.UUID})
	wantError(t, err, context.Canceled)
}

// What others have written into the metadata of our VM does not hide its record.
func TestVMXML(t *testing.T) {
	ours := serverSpec("hv-a")
	metadata, err := recordMetadata(ours.Record)
	must(t, err)
	text := func(elements string) string {
		return `<domain type="kvm" id="3"><name>n</name><metadata>` + elements + `</metadata><devices>
			<interface type="user"/><interface type="network"><mac address="52:54:00:00:00:11"/></interface>
			<interface type="network"><mac address="52:54:00:00:00:12"/></interface></devices></domain>`
	}
	const osinfo = `<o:libosinfo xmlns:o="http://libosinfo.org/xmlns/libvirt/domain/1.0"><o:os id="x"/><node>{}</node></o:libosinfo><node>{}</node>`
	for name, tt := range map[string]struct {
		elements string
		target   error
	}{
		"alone":      {elements: metadata.XML},
		"among many": {elements: osinfo + metadata.XML + osinfo},
		"not there":  {elements: osinfo, target: errNoRecord},
	} {
		t.Run(name, func(t *testing.T) {
			var def vmXML
			must(t, xml.Unmarshal([]byte(text(tt.elements)), &def))
			r, err := def.record()
			if !errors.Is(err, tt.target) || err == nil && r.NodeName() != ours.Name() {
				t.Errorf("got %+v, %v", r, err)
			}
			if got := def.mac(); got != ours.MAC {
				t.Errorf("MAC address %q", got)
			}
		})
	}
}

func TestUnreadableRecords(t *testing.T) {
	wrapped := func(text string) string {
		return `<cockpit:node xmlns:cockpit="` + record.Namespace + `">` + text + `</cockpit:node>`
	}
	f := mockFleet(t, "hv-b", "hv-a")
	must(t, f.Define(t.Context(), serverSpec("hv-a")))
	addDomain(t, f, "hv-b", "newer", wrapped(`{"version":99}`))
	addDomain(t, f, "hv-b", "damaged", wrapped(`{"version":`))
	addDomain(t, f, "hv-a", "elsewhere", wrapped(`{}`))
	addDomain(t, f, "hv-a", "of-nobody", "")
	addDomain(t, f, "hv-a", "of-another", `<x:node xmlns:x="https://example.com/x">{}</x:node>`)
	o := observe(t, f)
	if len(o.Machines) != 1 || len(o.Unreachable) != 0 {
		t.Errorf("observed %+v", o)
	}
	var got []string
	for _, u := range o.Unreadable {
		got = append(got, u.Hypervisor+"/"+u.Name)
		with(t, f, u.Hypervisor, func(conn *libvirt.Connect) error {
			d, err := lookup(conn.LookupDomainByUUIDString(u.UUID))
			if err != nil {
				return err
			}
			defer d.free()
			if d.name != u.Name {
				t.Errorf("%s has the UUID of %s", u.Name, d.name)
			}
			return nil
		})
		if u.Err == nil || errors.Is(u.Err, record.ErrNewer) != (u.Name == "newer") {
			t.Errorf("%s: %v", u.Name, u.Err)
		}
	}
	if want := []string{"hv-a/elsewhere", "hv-b/damaged", "hv-b/newer"}; !slices.Equal(got, want) {
		t.Errorf("unreadable are %q, want %q", got, want)
	}
}
