package lab

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestGaneshaConf(t *testing.T) {
	conf := ganeshaConf(layout{"dev"})
	for _, want := range []string{
		"Bind_addr = 10.77.0.2;", "Path = \"/var/lib/cockpit-lab/dev/nfs/export\";", "Pseudo = \"/export\";",
		"RecoveryRoot = \"/var/lib/cockpit-lab/dev/nfs/recovery\";", "Plugins_Dir = \"/var/lib/cockpit-lab/dev/nfs/root/",
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("lacks %q:\n%s", want, conf)
		}
	}
	if strings.Count(conf, "{") != strings.Count(conf, "}") {
		t.Errorf("a block is not closed:\n%s", conf)
	}
}

func TestNFSPoolXML(t *testing.T) {
	var pool struct {
		Type   string `xml:"type,attr"`
		Name   string `xml:"name"`
		Source struct {
			Host struct {
				Name string `xml:"name,attr"`
			} `xml:"host"`
			Dir struct {
				Path string `xml:"path,attr"`
			} `xml:"dir"`
		} `xml:"source"`
	}
	if err := xml.Unmarshal([]byte(nfsPoolXML()), &pool); err != nil {
		t.Fatal(err)
	}
	if pool.Type != "netfs" || pool.Name != NFSPool || pool.Source.Host.Name != nfsAddress.String() || pool.Source.Dir.Path != NFSPath {
		t.Errorf("got %+v", pool)
	}
}

// The file server's address is neither that of a hypervisor nor one that DHCP gives away.
func TestNFSAddress(t *testing.T) {
	if !lanPrefix.Contains(nfsAddress) || nfsAddress == lanGateway || !nfsAddress.Less(layout{"dev"}.newHypervisor(0).Address) || !nfsAddress.Less(dhcpFirst) {
		t.Errorf("address %s", nfsAddress)
	}
}

func TestEnvironOfChartsAndFileServer(t *testing.T) {
	l := layout{"dev"}
	for _, nfs := range []bool{false, true} {
		env := strings.Join((&Lab{State: State{Name: "dev", MirrorURL: "http://10.77.0.1", NFS: nfs, Hypervisors: []Hypervisor{l.newHypervisor(0)}}, layout: l}).Environ(), "\n") + "\n"
		for _, want := range []string{"LAB_CHARTS_URL=http://10.77.0.1/charts\n", "LAB_CHARTS_OCI=oci://10.77.0.1/charts\n"} {
			if !strings.Contains(env, want) {
				t.Errorf("lacks %q:\n%s", want, env)
			}
		}
		if strings.Contains(env, "LAB_NFS_SERVER=10.77.0.2\nLAB_NFS_PATH=/export\nLAB_NFS_POOL=nfs-ds\n") != nfs {
			t.Errorf("with a file server %v:\n%s", nfs, env)
		}
	}
}
