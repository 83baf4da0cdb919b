package hypervisor

import (
	"errors"
	"slices"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

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
	o := f.Observe(t.Context())
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
