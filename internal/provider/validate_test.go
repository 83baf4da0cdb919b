package provider

import (
	"strings"
	"testing"
)

const clusterID = "0f8fad5b-d9cb-469f-a165-70867728950e"

const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4mX1lVzOQO6XqkZ3v1v0Tq1n3yY6dG0o8m2m5b5c9d me@host\n"

func clusterConfig() object { return object{"name": "prod", "k3s_version": "v1.36.1+k3s1"} }

// servers is the configuration of a cluster with a control plane.
func servers(controlPlane object) object {
	return with(clusterConfig(), object{"control_plane": controlPlane})
}

func poolConfig() object { return object{"cluster_id": clusterID, "name": "workers"} }

func TestValidateResources(t *testing.T) {
	for name, tt := range map[string]struct {
		typeName string
		config   object
		want     []string
	}{
		"cluster": {clusterType, clusterConfig(), nil},
		"cluster with everything": {clusterType, with(clusterConfig(), object{
			"bridge":              "br0",
			"ssh_authorized_keys": []any{sshKey, `from="192.0.2.1" ` + sshKey},
			"endpoint":            "k8s.example:443",
			"tls_sans":            []any{"k8s.example", "192.0.2.10", "2001:db8::10"},
			"control_plane": object{
				"node_count": 3, "vcpus": 1, "memory_gib": 1, "disk_gib": 8, "storage_pool": "ssd", "clone": "full",
				"placement": object{"strategy": "auto", "anti_affinity": "preferred"},
			},
			"timeouts": object{"create": "90m"},
		}), nil},
		"longest name": {clusterType, with(clusterConfig(), object{"name": strings.Repeat("a", 40)}), nil},
		"name too long": {clusterType, with(clusterConfig(), object{"name": strings.Repeat("a", 41)}),
			[]string{"error at name: Unable to use cluster name", "41 characters", "room for 40"}},
		"upper-case name": {clusterType, with(clusterConfig(), object{"name": "Prod"}),
			[]string{`error at name: Unable to use cluster name "Prod"`, "lower-case letters"}},
		"version without build": {clusterType, with(clusterConfig(), object{"k3s_version": "1.36.1"}),
			[]string{`error at k3s_version: Unable to use k3s version "1.36.1"`, `did you mean "v1.36.1+k3s1"?`}},
		"channel for a version": {clusterType, with(clusterConfig(), object{"k3s_version": "stable"}),
			[]string{"error at k3s_version: ", "name one release"}},
		"network and bridge": {clusterType, with(clusterConfig(), object{"network": "lab", "bridge": "br0"}),
			[]string{"error at network: ", "bridge"}},
		"three servers": {clusterType, servers(object{"node_count": 3}), nil},
		"two servers": {clusterType, servers(object{"node_count": 2}),
			[]string{`error at control_plane.node_count: Unable to use node_count "2"`, "It has to be 1 or 3: ", "2 bear no more losses than 1."}},
		"five servers": {clusterType, servers(object{"node_count": 5}),
			[]string{`error at control_plane.node_count: Unable to use node_count "5"`, "more than 3 servers"}},
		"no server":        {clusterType, servers(object{"node_count": 0}), []string{`Unable to use node_count "0"`, "It has to be 1 or 3."}},
		"part of a server": {clusterType, servers(object{"node_count": 2.5}), []string{`Unable to use node_count "2.5"`, "It has to be 1 or 3."}},
		"part of a GiB": {clusterType, with(clusterConfig(), object{"control_plane": object{"memory_gib": 1.5}}),
			[]string{`error at control_plane.memory_gib: Unable to use memory_gib "1.5"`, "It has to be a whole number from 1 to 65536.", "control_plane.memory_gib"}},
		"part of a GiB in a pool": {poolType, with(poolConfig(), object{"memory_gib": 1.5}),
			[]string{`error at memory_gib: Unable to use memory_gib "1.5"`, "It has to be a whole number from 1 to 65536."}},
		"half a node": {poolType, with(poolConfig(), object{"node_count": 0.5}),
			[]string{`error at node_count: Unable to use node_count "0.5"`, "It has to be a whole number from 0 to 500."}},
		"no memory": {clusterType, with(clusterConfig(), object{"control_plane": object{"memory_gib": 0}}),
			[]string{"error at control_plane.memory_gib: "}},
		"unknown clone": {clusterType, with(clusterConfig(), object{"control_plane": object{"clone": "linked"}}),
			[]string{`error at control_plane.clone: Unable to use clone "linked"`, "It has to be overlay or full."}},
		"private key": {clusterType, with(clusterConfig(), object{"ssh_authorized_keys": []any{"-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"}}),
			[]string{"error at ssh_authorized_keys.0: Unable to use SSH key\n", "private key"}},
		"two keys in one": {clusterType, with(clusterConfig(), object{"ssh_authorized_keys": []any{sshKey + sshKey}}),
			[]string{"error at ssh_authorized_keys.0: ", "several lines"}},
		"path for a key": {clusterType, with(clusterConfig(), object{"ssh_authorized_keys": []any{"~/.ssh/id_ed25519.pub"}}),
			[]string{"error at ssh_authorized_keys.0: ", "authorized_keys"}},
		"null for a key": {clusterType, with(clusterConfig(), object{"ssh_authorized_keys": []any{sshKey, nil}}),
			[]string{`error at ssh_authorized_keys.1: Unable to use element "1"`, "It is null"}},
		"empty key": {clusterType, with(clusterConfig(), object{"ssh_authorized_keys": []any{""}}),
			[]string{"error at ssh_authorized_keys.0: ", "authorized_keys"}},
		"short timeout": {poolType, with(poolConfig(), object{"timeouts": object{"read": "59s"}}),
			[]string{`error at timeouts.read: Unable to use timeout "59s"`, "shorter than a minute", "The attribute is timeouts.read."}},
		"shortest timeout": {poolType, with(poolConfig(), object{"timeouts": object{"read": "1m"}}), nil},
		"bad timeout": {clusterType, with(clusterConfig(), object{"timeouts": object{"create": "long"}}),
			[]string{`error at timeouts.create: Unable to use timeout "long"`, "90m"}},

		"pool":          {poolType, poolConfig(), nil},
		"empty pool":    {poolType, with(poolConfig(), object{"node_count": 0}), nil},
		"negative pool": {poolType, with(poolConfig(), object{"node_count": -1}), []string{"error at node_count: "}},
		"pool named cp": {poolType, with(poolConfig(), object{"name": "cp"}),
			[]string{`error at name: Unable to use node pool name "cp"`, "control plane"}},
		"name for an id": {poolType, with(poolConfig(), object{"cluster_id": "prod"}),
			[]string{`error at cluster_id: Unable to use cluster id "prod"`, "cockpit_k3s_cluster.<name>.id"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			diags := w.validate(tt.typeName, tt.config)
			wantDiags(t, diags, tt.want...)
			if len(diags) > 1 {
				t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
			}
			if strings.Contains(render(diags), "c2VjcmV0") {
				t.Error("the diagnostics show a private key")
			}
		})
	}
}

// Node names are host names, which hold 63 characters.
func TestLongestNodeNameFits(t *testing.T) {
	const separatorsAndOrdinal = len("-") + len("-") + len("999")
	if n := maxClusterName + maxPoolName + separatorsAndOrdinal; n > 63 {
		t.Errorf("the longest node name has %d characters", n)
	}
	if maxNodeCount > 999 {
		t.Errorf("%d nodes have ordinals of more than three digits", maxNodeCount)
	}
}

func TestCheckURI(t *testing.T) {
	for uri, want := range map[string]string{
		"qemu:///system":  "",
		"qemu:///session": "",
		"qemu+unix:///system?socket=/run/lab/libvirt-sock":                   "",
		"qemu+ssh://root@hv-a.example:2222/system?keyfile=/root/.ssh/id_lab": "",
		"qemu+tls://hv-a.example/system":                                     "",
		"qemu+ssh://root@[2001:db8::1]/system":                               "",

		"":                                   `"qemu:///system"`,
		"root@hv-a":                          `"qemu+ssh://root@hv-a/system"`,
		"hv-a/system":                        `"qemu+ssh://hv-a/system"`,
		"qemu+ssh://root@hv-a":               `such as "qemu+ssh://root@hv-a/system"`,
		"qemu+ssh://hv-a/sys":                `such as "qemu+ssh://hv-a/system"`,
		"qemu+ssh:///system":                 "names no host",
		"qemu+shh://hv-a/system":             `unknown transport "shh"`,
		"qemu+unix://hv-a/system":            "names a host",
		"test:///default":                    "not of a QEMU hypervisor",
		"xen+ssh://hv-a/system":              "not of a QEMU hypervisor",
		"qemu+ssh://hv-a:x/system":           "check host, port and escapes",
		"qemu+ssh://root:geheim@hv-a/system": "holds a password",
	} {
		err := checkURI(uri)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: unexpected error: %v", uri, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got error %v, want one with %q", uri, err, want)
		case err != nil && strings.Contains(err.Error(), "geheim"):
			t.Errorf("%q: the error shows the password: %v", uri, err)
		}
	}
}
