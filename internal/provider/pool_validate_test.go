package provider

import (
	"strings"
	"testing"
	"time"
)

// canary is a secret that stands in no diagnostic.
const canary = "c4n4ry-s3cr3t"

func pool(changes object) object { return with(poolConfig(), changes) }

func TestValidatePools(t *testing.T) {
	manual := func(hosts ...any) object { return object{"strategy": "manual", "hosts": hosts} }
	taint := func(key, effect string) object { return object{"key": key, "effect": effect} }
	devices := object{"hv-a": []any{"0000:65:00.0", "0000:65:00.1"}, "hv-b": []any{"0000:b3:00.0"}}
	withDevices := func(changes object) object {
		return with(pool(object{
			"node_count": 2, "placement": manual("hv-a", "hv-b"), "host_devices": devices, "upgrade_settings": object{"max_surge": 0, "max_unavailable": 1},
		}), changes)
	}
	for name, tt := range map[string]struct {
		config object
		want   []string
	}{
		"everything": {withDevices(object{
			"labels":          object{"tier": "web", "example.com/rack": ""},
			"taints":          []any{taint("dedicated", "NoSchedule"), taint("dedicated", "NoExecute"), object{"key": "a", "value": "b", "effect": "PreferNoSchedule"}},
			"drain":           object{"timeout": "24h", "grace_period_seconds": 0, "on_timeout": "force", "on_destroy": false},
			"repair":          object{"not_ready_after": "10s", "max_unhealthy": 0},
			"remove_first":    []any{"workers-2", "prod-workers-10", "a-b-workers-1"},
			"data_disk":       object{"size_gib": 1, "storage_pool": "ssd", "mount_path": "/var/lib/longhorn"},
			"agent_args":      []any{"--kubelet-arg=max-pods=50"},
			"registries_yaml": "mirrors:\n  docker.io:\n    endpoint: [https://mirror.example]\n",
			"extra_user_data": "#cloud-config\npackages: [nfs-common]\n",
		}), nil},
		"empty": {pool(object{
			"labels": object{}, "taints": []any{}, "drain": object{}, "upgrade_settings": object{}, "repair": object{}, "remove_first": []any{}, "host_devices": object{},
			"agent_args": []any{}, "extra_user_data": "",
		}), nil},
		"parts that are not known": {withDevices(object{
			"labels":           object{"tier": unknown},
			"taints":           []any{object{"key": unknown, "effect": "NoSchedule"}, object{"key": "a", "value": unknown, "effect": "NoSchedule"}, object{"key": "a", "effect": unknown}, unknown},
			"drain":            object{"timeout": unknown, "grace_period_seconds": unknown, "on_timeout": unknown, "on_destroy": unknown},
			"upgrade_settings": object{"max_surge": unknown, "max_unavailable": 0},
			"repair":           object{"not_ready_after": unknown, "max_unhealthy": unknown},
			"remove_first":     []any{unknown},
			"data_disk":        object{"size_gib": unknown, "storage_pool": unknown, "mount_path": unknown},
			"host_devices":     object{"hv-a": unknown, "hv-b": []any{unknown}},
			"placement":        object{"strategy": "manual", "hosts": []any{"hv-a", unknown}},
			"agent_args":       []any{unknown, "--kubelet-arg=max-pods=50"},
		}), nil},
		"a name that is not known": {pool(object{"name": unknown, "remove_first": []any{"other-1"}}), nil},

		"key of a label":       {pool(object{"labels": object{"a b": "c"}}), []string{`error at labels.a b: Unable to use label "a b"`, "not valid", `labels["a b"]`}},
		"value of a label":     {pool(object{"labels": object{"tier": "a b"}}), []string{`error at labels.tier: Unable to use label "tier"`, "not valid"}},
		"label of the kubelet": {pool(object{"labels": object{"kubernetes.io/hostname": unknown}}), []string{`error at labels.kubernetes.io/hostname: `, "the kubelet"}},
		"label of servers":     {pool(object{"labels": object{"node-role.kubernetes.io/control-plane": ""}}), []string{"error at labels.node-role.kubernetes.io/control-plane: ", "a server"}},
		"null for a label":     {pool(object{"labels": object{"tier": nil}}), []string{`error at labels.tier: Unable to use element "tier"`, "It is null"}},

		"key of a taint":    {pool(object{"taints": []any{taint("a b", "NoSchedule")}}), []string{`error at taints.0: Unable to use taint "a b"`, "not valid"}},
		"effect of a taint": {pool(object{"taints": []any{taint("a", "Never")}}), []string{`error at taints.0: Unable to use taint "a"`, "NoSchedule, PreferNoSchedule, NoExecute"}},
		"taint of Kubernetes": {pool(object{"taints": []any{taint("node.kubernetes.io/unreachable", "NoExecute")}}),
			[]string{`error at taints.0: Unable to use taint "node.kubernetes.io/unreachable"`}},
		"a taint twice": {pool(object{"taints": []any{taint("a", "NoSchedule"), taint("b", "NoSchedule"), object{"key": "a", "value": "x", "effect": "NoSchedule"}}}),
			[]string{`error at taints.2: Unable to use taint "a"`, "index 0 has the same key and effect", "taints[2]"}},
		"taint without a key":     {pool(object{"taints": []any{object{"effect": "NoSchedule"}}}), []string{"error at taints.0: Unable to use taint\n", "key"}},
		"taint without an effect": {pool(object{"taints": []any{object{"key": "a"}}}), []string{`error at taints.0: Unable to use taint "a"`, "NoSchedule, PreferNoSchedule"}},
		"null for a taint":        {pool(object{"taints": []any{nil}}), []string{`error at taints.0: Unable to use element "0"`, "It is null"}},

		"no time for a drain":    {pool(object{"drain": object{"timeout": "0s"}}), []string{`error at drain.timeout: Unable to use drain.timeout "0s"`, `It has to be a length of time from 1s to 24h, such as "90s", "15m" or "1h30m".`}},
		"much time for a drain":  {pool(object{"drain": object{"timeout": "24h1s"}}), []string{"error at drain.timeout: ", "from 1s to 24h"}},
		"a part of a second":     {pool(object{"drain": object{"timeout": "1500ms"}}), []string{"error at drain.timeout: ", "whole seconds"}},
		"a number for a time":    {pool(object{"drain": object{"timeout": "15"}}), []string{`error at drain.timeout: Unable to use drain.timeout "15"`, "length of time"}},
		"negative grace":         {pool(object{"drain": object{"grace_period_seconds": -1}}), []string{`error at drain.grace_period_seconds: Unable to use grace_period_seconds "-1"`, "whole number from 0"}},
		"part of a grace":        {pool(object{"drain": object{"grace_period_seconds": 0.5}}), []string{"error at drain.grace_period_seconds: "}},
		"another end of a drain": {pool(object{"drain": object{"on_timeout": "ignore"}}), []string{`error at drain.on_timeout: Unable to use drain.on_timeout "ignore"`, "It has to be fail or force."}},

		"nothing at once":          {pool(object{"upgrade_settings": object{"max_surge": 0, "max_unavailable": 0}}), []string{"error at upgrade_settings: Unable to use upgrade_settings\n", "set max_surge or max_unavailable"}},
		"nothing at once, in part": {pool(object{"upgrade_settings": object{"max_surge": 0}}), []string{"error at upgrade_settings: ", "set max_surge or max_unavailable"}},
		"negative surge":           {pool(object{"upgrade_settings": object{"max_surge": -1}}), []string{"error at upgrade_settings.max_surge: "}},
		"large surge":              {pool(object{"upgrade_settings": object{"max_surge": 101}}), []string{"error at upgrade_settings.max_surge: ", "from 0 to 100"}},

		"impatient":          {pool(object{"repair": object{"not_ready_after": "9s"}}), []string{`error at repair.not_ready_after: Unable to use repair.not_ready_after "9s"`, "from 10s to 24h"}},
		"fewer than none":    {pool(object{"repair": object{"max_unhealthy": -1}}), []string{"error at repair.max_unhealthy: "}},
		"node of others":     {pool(object{"remove_first": []any{"workers-1", "db-1"}}), []string{`error at remove_first.1: Unable to use remove_first "db-1"`, "called workers-1, or <cluster>-workers-1"}},
		"no node":            {pool(object{"remove_first": []any{"workers"}}), []string{"error at remove_first.0: "}},
		"node zero":          {pool(object{"remove_first": []any{"workers-0"}}), []string{"error at remove_first.0: "}},
		"pool within a name": {pool(object{"remove_first": []any{"myworkers-1"}}), []string{"error at remove_first.0: "}},

		"no data disk": {pool(object{"data_disk": object{"size_gib": 0}}), []string{"error at data_disk.size_gib: ", "from 1"}},
		"no pool":      {pool(object{"data_disk": object{"size_gib": 1, "storage_pool": ""}}), []string{"error at data_disk.storage_pool: "}},
		"system path":  {pool(object{"data_disk": object{"size_gib": 1, "mount_path": "/etc/data"}}), []string{`error at data_disk.mount_path: Unable to use data_disk.mount_path "/etc/data"`, "directory of the system"}},

		"address of a device": {withDevices(object{"host_devices": object{"hv-a": []any{"65:00.0"}, "hv-b": []any{"0000:b3:00.0"}}}),
			[]string{`error at host_devices.hv-a.0: Unable to use host device "65:00.0"`, `such as "0000:65:00.0"`}},
		"no device": {withDevices(object{"host_devices": object{"hv-a": []any{}, "hv-b": []any{"0000:b3:00.0"}}}), []string{"error at host_devices.hv-a: "}},
		"a device twice": {withDevices(object{"host_devices": object{"hv-a": []any{"0000:65:00.0", "0000:65:00.0"}, "hv-b": []any{"0000:b3:00.0"}}}),
			[]string{"error at host_devices.hv-a: "}},
		"devices, placed by load": {withDevices(object{"placement": nil}), []string{"error at host_devices: Unable to use host_devices\n", `strategy = "manual"`}},
		"devices and a surge":     {withDevices(object{"upgrade_settings": nil}), []string{"error at upgrade_settings.max_surge: Unable to use host_devices\n", "max_surge = 0, max_unavailable = 1"}},
		"hypervisor without devices": {withDevices(object{"placement": manual("hv-a", "hv-c")}),
			[]string{"error at host_devices: ", `no devices for that`}},
		"two nodes on a hypervisor": {withDevices(object{"placement": manual("hv-a", "hv-a")}),
			[]string{"error at placement.hosts: Unable to use host_devices\n", `2 nodes on hypervisor "hv-a"`}},
		"all nodes on a hypervisor": {withDevices(object{"placement": manual("hv-a")}), []string{"error at placement.hosts: ", `2 nodes on hypervisor "hv-a"`}},
		"one node on a hypervisor":  {withDevices(object{"node_count": 1, "placement": manual("hv-a")}), nil},
		"how many is not known":     {withDevices(object{"node_count": unknown, "placement": manual("hv-a")}), nil},

		"argument of the provider":   {pool(object{"agent_args": []any{"--node-name=x"}}), []string{"error at agent_args: Unable to use agent_args\n", "--node-name: "}},
		"argument with an attribute": {pool(object{"agent_args": []any{"--node-label=a=b"}}), []string{"error at agent_args: ", "pool's labels"}},
		"secret for an argument":     {pool(object{"agent_args": []any{"--token=" + canary}}), []string{"error at agent_args: ", "--token: "}},
		"null for an argument":       {pool(object{"agent_args": []any{nil}}), []string{"error at agent_args.0: "}},
		"registries of another kind": {pool(object{"registries_yaml": "mirror: {}\n"}), []string{"error at registries_yaml: Unable to use registries_yaml\n", "Line 1"}},
		"secret in bad registries":   {pool(object{"registries_yaml": "configs: " + canary + "\n"}), []string{"error at registries_yaml: Unable to use registries_yaml\n"}},
		"empty registries":           {pool(object{"registries_yaml": ""}), []string{"error at registries_yaml: ", "It says nothing."}},
		"script for user data":       {pool(object{"extra_user_data": "#!/bin/sh\necho " + canary}), []string{"error at extra_user_data: Unable to use extra_user_data\n", "cloud-config"}},
		"user data of the provider":  {pool(object{"extra_user_data": "hostname: " + canary}), []string{"error at extra_user_data: ", "cannot set hostname"}},
		"secret in bad user data":    {pool(object{"extra_user_data": "users:\n  - [" + canary}), []string{"error at extra_user_data: "}},
		"argument of the other role": {pool(object{"agent_args": []any{"--kube-apiserver-arg=v=2"}}), []string{"error at agent_args: ", "only servers"}},
	} {
		t.Run(name, func(t *testing.T) {
			diags := newWorld(t, someTemplate()).validate(poolType, tt.config)
			wantDiags(t, diags, tt.want...)
			if len(diags) > 1 {
				t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
			}
			if strings.Contains(render(diags), canary) {
				t.Errorf("the diagnostics show a secret:\n%s", render(diags))
			}
		})
	}
}

func TestValidateServers(t *testing.T) {
	for name, tt := range map[string]struct {
		controlPlane object
		want         []string
	}{
		"everything": {object{
			"server_args": []any{"--kube-apiserver-arg=v=2"}, "registries_yaml": "mirrors: {}\n", "extra_user_data": "packages: [nfs-common]\n",
		}, nil},
		"not known":           {object{"server_args": unknown, "registries_yaml": unknown, "extra_user_data": unknown}, nil},
		"argument":            {object{"server_args": []any{"--cluster-init"}}, []string{"error at control_plane.server_args: Unable to use server_args\n", "--cluster-init: "}},
		"argument of the API": {object{"server_args": []any{"--tls-san=x"}}, []string{"error at control_plane.server_args: ", "cluster's tls_sans"}},
		"registries":          {object{"registries_yaml": "configs: " + canary}, []string{"error at control_plane.registries_yaml: Unable to use registries_yaml\n"}},
		"user data":           {object{"extra_user_data": canary}, []string{"error at control_plane.extra_user_data: Unable to use extra_user_data\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			diags := newWorld(t, someTemplate()).validate(clusterType, servers(tt.controlPlane))
			wantDiags(t, diags, tt.want...)
			if len(diags) > 1 || strings.Contains(render(diags), canary) {
				t.Errorf("want one diagnostic without a secret:\n%s", render(diags))
			}
		})
	}
}

func TestMountPathForm(t *testing.T) {
	for path, want := range map[string]string{
		"/data": "", "/srv/data": "", "/mnt": "", "/srv": "", "/opt/local-path-provisioner": "", "/var/lib/longhorn": "", "/var/lib/rancher": "", "/var/lib/kubelet": "",
		"/home/db": "", "/data-2/a_b.c": "", "/etcd": "", "/rooted": "", "/var/log/pods": "",

		"":     "absolute path",
		"data": "absolute path", "/data/": "absolute path", "/data//x": "absolute path", "/data/../etc": "absolute path", "/data/.": "absolute path",
		"/my data": "absolute path", "/data\n": "absolute path", "/da:ta": "absolute path",
		"/": "directory of the system", "/etc": "directory of the system", "/usr/local/data": "directory of the system", "/proc/1": "directory of the system", "/boot/efi": "directory of the system",
		"/var": "directory of the system", "/var/lib": "directory of the system", "/var/lib/cloud/x": "directory of the system", "/opt": "directory of the system", "/home": "directory of the system",
		"/root/data": "directory of the system", "/tmp/x": "directory of the system", "/run/data": "directory of the system", "/dev/shm": "directory of the system",
		"/var/lib/rancher/k3s": `choose "/var/lib/rancher"`, "/var/lib/rancher/k3s/agent": `choose "/var/lib/rancher"`,
	} {
		err := mountPathForm().check(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
}

func TestPCIForm(t *testing.T) {
	for address, valid := range map[string]bool{
		"0000:65:00.0": true, "ffff:1f:1f.7": true, "0000:0a:10.1": true,
		"": false, "65:00.0": false, "0000:65:00": false, "0000:65:00.8": false, "0000:65:20.0": false, "0000:6A:00.0": false, "pci_0000_65_00_0": false, "0000:65:00.0 ": false,
	} {
		if err := pciForm().check(address); (err == nil) != valid {
			t.Errorf("%q: got %v", address, err)
		}
	}
}

func TestDurationText(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "15m": 15 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute, "1h0m5s": time.Hour + 5*time.Second,
		"24h": 24 * time.Hour, "20h10m": 20*time.Hour + 10*time.Minute,
	} {
		if got := durationText(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}
