package hypervisor

import (
	"errors"
	"os"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// A real daemon tells of a pool that was never started, and nothing is started to read it.
func TestLibvirtdExport(t *testing.T) {
	g := newGround(t)
	name, fleet := g.tag+"-nfs", g.Fleet
	if second := os.Getenv(secondURIVariable); second != "" {
		fleet = New(map[string]Config{"hv-a": {URI: g.uri}, "hv-b": {URI: second}}, TemplateRef{}, 1)
		t.Cleanup(func() { wantNoLeak(t, fleet) })
	}
	_, err := fleet.Export(t.Context(), name)
	wantError(t, err, machine.ErrNotFound, name, "hv-a")

	definePool(t, g.Fleet, "hv-a", "netfs", name, `<host name="192.0.2.5"/><dir path="/export/k8s"/><format type="nfs"/>`)
	got, err := fleet.Export(t.Context(), name)
	if want := (machine.Export{Server: "192.0.2.5", Path: "/export/k8s"}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		p, err := conn.LookupStoragePoolByName(name)
		if err != nil {
			return err
		}
		active, err := p.IsActive()
		if active {
			t.Error("it was started")
		}
		return errors.Join(err, p.Free())
	})
	_, err = fleet.Export(t.Context(), g.vms)
	wantError(t, err, nil, g.vms, `type "dir"`)
}
