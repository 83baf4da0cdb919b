package cloudinit

import (
	"strings"
	"testing"
)

func TestEncodeDisk(t *testing.T) {
	u := UserData{
		Hostname: "n",
		Disks:    []Disk{{Serial: "cockpit-data", MountPath: "/srv/data", Unit: "k3s-agent"}},
		Files:    []File{{Path: "/srv/data2/x", Content: []byte("x\n"), Mode: 0o600}},
		Commands: [][]string{{"/bin/true"}},
	}
	got, err := u.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `fs_setup:
- device: "/dev/disk/by-id/virtio-cockpit-data"
  filesystem: "ext4"
  partition: "any"
  overwrite: false
mounts:
- - "/dev/disk/by-id/virtio-cockpit-data"
  - "/srv/data"
  - "ext4"
  - "defaults,nofail,x-systemd.growfs"
  - "0"
  - "2"
write_files:
- path: "/srv/data2/x"
  permissions: "0600"
  content: |
    x
- path: "/etc/systemd/system/k3s-agent.service.d/10-cockpit-data.conf"
  permissions: "0644"
  content: |
    [Unit]
    RequiresMountsFor=/srv/data
    AssertPathIsMountPoint=/srv/data
runcmd:
- - "/bin/true"
`
	if !strings.HasSuffix(string(got), want) {
		t.Errorf("got\n%s\nwant it to end\n%s", got, want)
	}
}

func TestEncodeDiskWithoutUnit(t *testing.T) {
	got, err := UserData{Hostname: "n", Disks: []Disk{{Serial: "d", MountPath: "/data"}}}.Encode()
	if err != nil || strings.Contains(string(got), "systemd/system") || strings.Contains(string(got), "write_files") {
		t.Errorf("%v, %s", err, got)
	}
}

func TestEncodeRefusesDisk(t *testing.T) {
	good := Disk{Serial: "cockpit-data", MountPath: "/data", Unit: "k3s.service"}
	for name, change := range map[string]func(*Disk){
		"good":                func(*Disk) {},
		"deep":                func(d *Disk) { d.MountPath = "/var/lib/longhorn" },
		"beside our file":     func(d *Disk) { d.MountPath = "/etc/ours2" },
		"no serial number":    func(d *Disk) { d.Serial = "" },
		"long serial number":  func(d *Disk) { d.Serial = strings.Repeat("x", 21) },
		"a dot":               func(d *Disk) { d.Serial = "data.1" },
		"a slash":             func(d *Disk) { d.Serial = "../sda" },
		"no path":             func(d *Disk) { d.MountPath = "" },
		"relative":            func(d *Disk) { d.MountPath = "data" },
		"root":                func(d *Disk) { d.MountPath = "/" },
		"trailing slash":      func(d *Disk) { d.MountPath = "/data/" },
		"dots":                func(d *Disk) { d.MountPath = "/data/../etc" },
		"a space":             func(d *Disk) { d.MountPath = "/my data" },
		"a specifier":         func(d *Disk) { d.MountPath = "/data%i" },
		"a line break":        func(d *Disk) { d.MountPath = "/data\n/etc" },
		"over our file":       func(d *Disk) { d.MountPath = "/etc" },
		"in place of our one": func(d *Disk) { d.MountPath = "/etc/ours" },
		"no unit name":        func(d *Disk) { d.Unit = "../k3s" },
	} {
		d := good
		change(&d)
		_, err := UserData{Hostname: "n", Disks: []Disk{d}, Files: []File{{Path: "/etc/ours", Mode: 0o600}}}.Encode()
		if ok := name == "good" || name == "deep" || name == "beside our file"; ok != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
