package hypervisor

import (
	"errors"
	"fmt"
	"testing"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// definePool defines a pool of a type on a hypervisor, leaves it inactive, and takes it away with the test.
func definePool(t *testing.T, f *Fleet, hypervisor, kind, name, source string) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, err := conn.StoragePoolDefineXML(fmt.Sprintf(`<pool type="%s"><name>%s</name><source>%s</source><target><path>/mnt/%[2]s</path></target></pool>`,
			kind, name, source), 0)
		if err == nil {
			t.Cleanup(func() { must(t, errors.Join(p.Undefine(), p.Free())) })
		}
		return err
	})
}

func TestExport(t *testing.T) {
	const nas = `<host name="nas.example"/><dir path="/export/k8s"/>`
	want := machine.Export{Server: "nas.example", Path: "/export/k8s"}
	for name, tt := range map[string]struct {
		given  func(t *testing.T, f *Fleet)
		want   machine.Export
		target error
		words  []string
	}{
		"inactive on one": {
			given: func(t *testing.T, f *Fleet) { definePool(t, f, "hv-b", "netfs", "nfs", nas) }, want: want,
		},
		"active on all, written in several ways": {
			given: func(t *testing.T, f *Fleet) {
				addNFS(t, f, "hv-a", "nfs", "nas.example", "/export/k8s")
				definePool(t, f, "hv-b", "netfs", "nfs", `<host name="NAS.example"/><dir path="/export//k8s/"/><format type="nfs"/>`)
				definePool(t, f, "hv-c", "netfs", "nfs", nas+`<format type="auto"/>`)
			},
			want: want,
		},
		"another is silent": {
			given: func(t *testing.T, f *Fleet) {
				definePool(t, f, "hv-b", "netfs", "nfs", nas)
				silence(f, "hv-a")
			},
			want: want,
		},
		"two exports": {
			given: func(t *testing.T, f *Fleet) {
				definePool(t, f, "hv-a", "netfs", "nfs", nas)
				definePool(t, f, "hv-c", "netfs", "nfs", `<host name="nas.example"/><dir path="/export/other"/>`)
			},
			words: []string{`storage pool "nfs"`, `nas.example:/export/k8s on hypervisor "hv-a"`, `nas.example:/export/other on hypervisor "hv-c"`},
		},
		"another kind of pool on one": {
			given: func(t *testing.T, f *Fleet) {
				definePool(t, f, "hv-a", "netfs", "nfs", nas)
				definePool(t, f, "hv-b", "dir", "nfs", "")
			},
			words: []string{`storage pool "nfs"`, `hypervisor "hv-b"`, `type "dir"`, "netfs"},
		},
		"another kind of pool, and one is silent": {
			given: func(t *testing.T, f *Fleet) {
				silence(f, "hv-a")
				definePool(t, f, "hv-b", "dir", "nfs", "")
			},
			words: []string{`hypervisor "hv-b"`, `type "dir"`},
		},
		"another file system": {
			given: func(t *testing.T, f *Fleet) {
				definePool(t, f, "hv-a", "netfs", "nfs", nas+`<format type="glusterfs"/>`)
			},
			words: []string{`hypervisor "hv-a"`, `"glusterfs"`, "no NFS"},
		},
		"nowhere": {
			given:  func(*testing.T, *Fleet) {},
			target: machine.ErrNotFound, words: []string{`storage pool "nfs"`, "hv-a, hv-b, hv-c"},
		},
		"nowhere, and one is silent": {
			given:  func(_ *testing.T, f *Fleet) { silence(f, "hv-b") },
			target: machine.ErrUnreachable, words: []string{`storage pool "nfs"`, `hypervisor "hv-b"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a", "hv-b", "hv-c")
			tt.given(t, f)
			got, err := f.Export(t.Context(), "nfs")
			if tt.words != nil {
				wantError(t, err, tt.target, tt.words...)
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestExportOf(t *testing.T) {
	read := func(source string) (machine.Export, error) {
		var def libvirtxml.StoragePool
		must(t, def.Unmarshal(`<pool type="netfs"><name>nfs</name>`+source+`</pool>`))
		return exportOf(def)
	}
	got, err := read(`<source><host name="[2001:db8::5]"/><dir path="/"/></source>`)
	if want := (machine.Export{Server: "2001:db8::5", Path: "/"}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for source, word := range map[string]string{
		``:                                  "no server",
		`<source><dir path="/x"/></source>`: "no server",
		`<source><host name="x"/></source>`: "no directory",
		`<source><host name="x"/><dir path="//x/y"/><format type="cifs"/></source>`: `"cifs"`,
	} {
		_, err := read(source)
		wantError(t, err, nil, word)
	}
}
