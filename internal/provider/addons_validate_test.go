package provider

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// network and storage are configurations of a cluster with a cni and with a csi.
func network(cni object) object { return with(clusterConfig(), object{"cni": cni}) }

func storage(csi any) object { return with(clusterConfig(), object{"csi": csi}) }

func TestValidateAddons(t *testing.T) {
	for name, tt := range map[string]struct {
		config object
		want   []string
	}{
		"nothing said of the network": {network(object{}), nil},
		"flannel":                     {network(object{"plugin": "flannel", "routing": "host-gw", "values_yaml": ""}), nil},
		"calico":                      {network(object{"plugin": "calico", "routing": "vxlan", "values_yaml": "a: b", "chart": object{"version": "v3.32.2"}}), nil},
		"cilium": {network(object{"plugin": "cilium", "routing": "native", "pod_cidr": "10.0.0.0/8", "service_cidr": "172.16.0.0/12", "hubble": true, "kube_proxy_replacement": true,
			"chart": object{"archive": "charts/cilium.tgz"}}), nil},
		"no plugin": {network(object{"plugin": "canal"}), []string{`error at cni.plugin: Unable to use cni.plugin "canal"`, "It has to be flannel or calico or cilium."}},
		"routing of another plugin": {network(object{"plugin": "calico", "routing": "tunnel"}),
			[]string{`error at cni.routing: Unable to use cni.routing "tunnel"`, "Calico has the routings ipip (its default) and vxlan.", "The attribute is cni.routing."}},
		"routing of another plugin than the default": {network(object{"routing": "native"}), []string{`Unable to use cni.routing "native"`, "Flannel has the routings vxlan (its default) and host-gw."}},
		"hubble without Cilium": {network(object{"plugin": "calico", "hubble": true}),
			[]string{"error at cni.hubble: Unable to use cni.hubble\n", "It is a part of Cilium, and the plugin is calico", `plugin = "cilium"`}},
		"no hubble without Cilium": {network(object{"plugin": "calico", "hubble": false, "kube_proxy_replacement": false}), nil},
		"kube-proxy without Cilium": {network(object{"kube_proxy_replacement": true}),
			[]string{"error at cni.kube_proxy_replacement: Unable to use cni.kube_proxy_replacement\n", "the plugin is flannel"}},
		"values of Flannel":              {network(object{"values_yaml": "a: b"}), []string{"error at cni.values_yaml: Unable to use cni.values_yaml\n", "Flannel is part of k3s and has no chart"}},
		"chart of Flannel":               {network(object{"plugin": "flannel", "chart": object{"version": "1.2.3"}}), []string{"error at cni.chart: Unable to use cni.chart\n", "Flannel is part of k3s and has no chart"}},
		"values of a plugin to be known": {network(object{"plugin": unknown, "values_yaml": "a: b", "hubble": true, "routing": "native"}), nil},
		"values to be known":             {network(object{"values_yaml": unknown, "chart": unknown, "hubble": unknown, "routing": unknown}), nil},
		"overlapping networks": {network(object{"pod_cidr": "10.40.0.0/13"}),
			[]string{`error at cni.pod_cidr: Unable to use cni.pod_cidr "10.40.0.0/13"`, "the services, 10.43.0.0/16, overlap"}},
		"services over the default of pods": {network(object{"service_cidr": "10.42.128.0/24"}), []string{`error at cni.service_cidr: Unable to use cni.service_cidr "10.42.128.0/24"`, "overlap"}},
		"networks to be known":              {network(object{"pod_cidr": "10.43.0.0/16", "service_cidr": unknown}), nil},
		"no network":                        {network(object{"pod_cidr": "10.42.0.0"}), []string{`error at cni.pod_cidr: Unable to use network "10.42.0.0"`, `such as "10.42.0.0/16"`}},
		"IPv6":                              {network(object{"pod_cidr": "fd00::/56"}), []string{"error at cni.pod_cidr: ", "Clusters have IPv4 networks", "/8 to /23"}},
		"few pods":                          {network(object{"pod_cidr": "10.42.0.0/24"}), []string{"It has to be an IPv4 network from /8 to /23."}},
		"many services":                     {network(object{"service_cidr": "172.0.0.0/8"}), []string{"error at cni.service_cidr: ", "It has to be an IPv4 network from /12 to /24."}},
		"address within a network":          {network(object{"pod_cidr": "10.42.0.1/16"}), []string{`write "10.42.0.0/16"`}},
		"archive and version": {network(object{"plugin": "cilium", "chart": object{"archive": "cilium.tgz", "version": "1.20.2"}}),
			[]string{"error at cni.chart.archive: ", "chart.version"}},
		"file as a repository":       {network(object{"plugin": "cilium", "chart": object{"repository": "file:///charts"}}), []string{"error at cni.chart.repository: Unable to use chart.repository\n", "https://, http:// or oci://"}},
		"credentials in a URL":       {network(object{"plugin": "cilium", "chart": object{"repository": "https://me:geheim@mirror.example/charts"}}), []string{"error at cni.chart.repository: Unable to use chart.repository\n", "It holds credentials", "username and password"}},
		"registry without a place":   {network(object{"plugin": "cilium", "chart": object{"repository": "oci://registry.example"}}), []string{`"oci://registry.example/charts"`}},
		"repository with a question": {network(object{"plugin": "cilium", "chart": object{"repository": "https://mirror.example/charts?token=geheim"}}), []string{"a query or a fragment"}},

		"no storage": {storage(object{}), nil},
		"all storage": {storage(object{
			"local_path": object{"path": "/data", "values_yaml": "a: b"}, "nfs": object{"server": "192.0.2.5", "path": "/export", "nfs_version": "4.1", "mount_options": []any{"hard", "timeo=600"}},
			"longhorn": object{"replica_count": 20, "data_path": "/srv/longhorn", "drain_policy": "always-allow"}, "default_class": "nfs",
		}), nil},
		"export of a pool":          {storage(object{"nfs": object{"pool": "nfs-ds"}}), nil},
		"export at an IPv6 address": {storage(object{"nfs": object{"server": "2001:db8::5", "path": "/export"}}), nil},
		"export to be known":        {storage(object{"nfs": object{"pool": unknown, "server": unknown, "path": "/export"}}), nil},
		"tiers to be known":         {storage(object{"local_path": unknown, "nfs": unknown, "longhorn": unknown, "default_class": "longhorn"}), nil},
		"no export":                 {storage(object{"nfs": object{}}), []string{"error at csi.nfs: Unable to use csi.nfs\n", "by pool, or by server and path"}},
		"export told twice":         {storage(object{"nfs": object{"pool": "nfs-ds", "path": "/export"}}), []string{"error at csi.nfs.pool: Unable to use csi.nfs\n", "leave them out, or pool"}},
		"no path":                   {storage(object{"nfs": object{"server": "192.0.2.5"}}), []string{"error at csi.nfs.path: Unable to use csi.nfs\n", "missing beside server"}},
		"no server":                 {storage(object{"nfs": object{"path": "/export"}}), []string{"error at csi.nfs.server: Unable to use csi.nfs\n", "missing beside path"}},
		"server and path in one":    {storage(object{"nfs": object{"server": "nas.example:/export", "path": "/x"}}), []string{`error at csi.nfs.server: Unable to use csi.nfs.server "nas.example:/export"`, `server = "nas.example", path = "/export"`}},
		"port of the server":        {storage(object{"nfs": object{"server": "nas.example:2049", "path": "/x"}}), []string{"error at csi.nfs.server: ", "neither a DNS name nor an IP address"}},
		"the node itself":           {storage(object{"nfs": object{"server": "127.0.0.1", "path": "/x"}}), []string{"error at csi.nfs.server: ", "the address of each node itself"}},
		"relative export":           {storage(object{"nfs": object{"server": "192.0.2.5", "path": "export"}}), []string{`error at csi.nfs.path: Unable to use csi.nfs.path "export"`, "absolute path"}},
		"NFS version":               {storage(object{"nfs": object{"pool": "p", "nfs_version": "2"}}), []string{`error at csi.nfs.nfs_version: Unable to use csi.nfs.nfs_version "2"`, "It has to be 3 or 4 or 4.1 or 4.2."}},
		"version as an option":      {storage(object{"nfs": object{"pool": "p", "mount_options": []any{"hard", "nfsvers=4.1"}}}), []string{`error at csi.nfs.mount_options.1: Unable to use mount option "nfsvers=4.1"`, "set nfs_version"}},
		"options in one":            {storage(object{"nfs": object{"pool": "p", "mount_options": []any{"hard,nolock"}}}), []string{"error at csi.nfs.mount_options.0: ", "an element of its own"}},
		"null as an option":         {storage(object{"nfs": object{"pool": "p", "mount_options": []any{nil}}}), []string{"error at csi.nfs.mount_options.0: ", "It is null"}},
		"relative path":             {storage(object{"local_path": object{"path": "data"}}), []string{`error at csi.local_path.path: Unable to use csi.local_path.path "data"`, "absolute path"}},
		"directory of the system":   {storage(object{"longhorn": object{"data_path": "/etc/longhorn"}}), []string{"error at csi.longhorn.data_path: ", "directory of the system"}},
		"no copies":                 {storage(object{"longhorn": object{"replica_count": 0}}), []string{`error at csi.longhorn.replica_count: Unable to use replica_count "0"`, "from 1 to 20"}},
		"drain policy":              {storage(object{"longhorn": object{"drain_policy": "never"}}), []string{`Unable to use csi.longhorn.drain_policy "never"`, "block-if-contains-last-replica"}},
		"class of no tier":          {storage(object{"local_path": object{}, "default_class": "longhorn"}), []string{`error at csi.default_class: Unable to use csi.default_class "longhorn"`, "add csi.longhorn"}},
		"class without storage":     {storage(object{"default_class": "local-path"}), []string{`Unable to use csi.default_class "local-path"`, "add csi.local_path"}},
		"no class":                  {storage(object{"default_class": "fast"}), []string{`Unable to use csi.default_class "fast"`, "It has to be local-path or nfs or longhorn."}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			diags := w.validate(clusterType, tt.config)
			wantDiags(t, diags, tt.want...)
			if len(diags) > 1 {
				t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
			}
			if strings.Contains(render(diags), "geheim") {
				t.Error("the diagnostics show a password")
			}
		})
	}
}

// What the catalogue says of charts and values is told when a configuration is validated, with no hypervisor and no provider; what
// validators have looked at as well is left to the plan.
func TestFaultsOfAddonsStandOnTheirAttributes(t *testing.T) {
	for field, want := range map[machine.Field]string{
		machine.FieldCNIValues: "cni.values_yaml", machine.FieldCNIChart: "cni.chart", machine.FieldLocalPathValues: "csi.local_path.values_yaml",
		machine.FieldNFSValues: "csi.nfs.values_yaml", machine.FieldNFSChart: "csi.nfs.chart", machine.FieldLonghornValues: "csi.longhorn.values_yaml", machine.FieldLonghornChart: "csi.longhorn.chart",
	} {
		w := newWorld(t, with(someTemplate(), object{"hypervisors": object{"a": object{"uri": unknown}}}))
		w.engine.faults = []cluster.Problem{{Field: field, Err: errors.New("line 2: the provider sets x: use y")}}
		wantDiags(t, w.validate(clusterType, clusterConfig()), "error at "+want+": Unable to use "+want+"\n", "Line 2: the provider sets x: use y.", "The attribute is "+want+".")
		wantDiags(t, w.plan(clusterType, nil, clusterConfig()).diags, "error at "+want+`: Unable to create cluster "prod"`, "Line 2: the provider sets x")
	}
	for field, want := range map[machine.Field]string{machine.FieldLonghorn: "csi.longhorn", machine.FieldNFSServer: "csi.nfs.server", machine.FieldDefaultClass: "csi.default_class"} {
		w := newWorld(t, someTemplate())
		state := w.create(clusterType, clusterConfig())
		w.engine.faults = []cluster.Problem{{Field: field, Err: errors.New("it does not fit")}}
		wantDiags(t, w.validate(clusterType, clusterConfig()))
		wantDiags(t, w.plan(clusterType, nil, clusterConfig()).diags, "error at "+want+`: Unable to create cluster "prod"`)
		wantDiags(t, w.plan(clusterType, state, storage(object{"longhorn": object{}})).diags, "error at "+want+`: Unable to update cluster "prod"`, "It does not fit.")
		wantDiags(t, w.plan(clusterType, state, clusterConfig()).diags)
	}
}
