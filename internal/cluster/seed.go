package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cloudinit"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// turnTimeout bounds in the guest what a prepared server waits for its turn. The apply that prepared it is long over then.
const turnTimeout = 6 * time.Hour

// seed builds a node's cloud-init seed and writes it to its volume. The guest begins no new download in the last two
// thirds of the wait for its bootstrap, so that a failure is mostly told by the one who saw it. A server that waits for its
// turn gets its configuration with that.
func (r *run) seed(ctx context.Context, m machine.Machine, waits bool) error {
	version, err := k3s.ParseVersion(r.settings.K3sVersion)
	if err != nil {
		return err
	}
	bootstrap := k3s.Bootstrap{
		Instance: m.UUID, Role: roleOf(m.Record), Version: version, InstallScriptURL: r.engine.options.InstallScriptURL,
		Retry: min(k3s.DefaultRetry, r.waits.Bootstrap/3), Preflight: preflightFor(r.settings),
	}
	var files []cloudinit.File
	if waits {
		bootstrap.Turn = turnTimeout
	} else {
		config, err := r.k3sConfig(ctx, m, version)
		if err != nil {
			return err
		}
		files = append(files, cloudinit.File{Path: k3s.ConfigPath, Mode: 0o600, Content: config})
	}
	settings, err := r.settingsOf(m)
	if err != nil {
		return err
	}
	user := userData(m.Record, m.Name, r.settings.SSHAuthorizedKeys, r.extra, append(slices.Concat(files, settings),
		cloudinit.File{Path: k3s.BootstrapEnvPath, Mode: 0o600, Content: k3s.BootstrapEnv(bootstrap)},
		cloudinit.File{Path: k3s.PreflightPath, Mode: 0o755, Content: []byte(k3s.PreflightScript())},
		cloudinit.File{Path: k3s.BootstrapPath, Mode: 0o755, Content: []byte(k3s.BootstrapScript())}))
	data, err := user.Encode()
	if err != nil {
		return fmt.Errorf("build the user-data: %w", err)
	}
	iso, err := cloudinit.ISO(seedOf(m, data))
	if err != nil {
		return fmt.Errorf("build the seed: %w", err)
	}
	return r.engine.fleet.WriteSeed(ctx, m, iso)
}

// userData is what a node with that record is told at its first boot.
func userData(r record.Record, name string, keys []string, x Extra, files []cloudinit.File) cloudinit.UserData {
	user := cloudinit.UserData{
		Hostname: name, Files: files, Commands: [][]string{{"/bin/sh", k3s.BootstrapPath}}, SSHAuthorizedKeys: keys, Extra: []byte(x.UserData),
	}
	if data := r.Shape.Data; data.SizeGiB > 0 {
		user.Disks = []cloudinit.Disk{{Serial: machine.DataSerial, MountPath: data.MountPath, Unit: roleOf(r).Unit()}}
	}
	return user
}

// collision tells what of the user's own cloud-config a node cannot be made with, beside what the provider tells it.
func (g group) collision(settings record.Cluster) error {
	var files []cloudinit.File
	for _, path := range []string{k3s.ConfigPath, k3s.ArgsPath, k3s.RegistriesPath, k3s.BootstrapEnvPath, k3s.PreflightPath, k3s.BootstrapPath} {
		files = append(files, cloudinit.File{Path: path, Content: []byte("x")})
	}
	_, err := userData(g.base, "node", settings.SSHAuthorizedKeys, g.extra, files).Encode()
	return err
}

// k3sConfig builds a node's config.yaml. The server that starts a cluster gets a new token; all others get the one that a
// server wrote, which pins the cluster's CA.
func (r *run) k3sConfig(ctx context.Context, m machine.Machine, version k3s.Version) ([]byte, error) {
	var j join
	if m.Record.Role == record.Agent || r.living() {
		var err error
		if j, err = r.joinInfo(ctx); err != nil {
			return nil, err
		}
	}
	if m.Record.Role == record.Agent {
		c := k3s.AgentConfig{NodeName: m.Name, ServerURL: j.url, Token: j.token, Labels: m.Record.Labels}
		for _, t := range m.Record.Taints {
			c.Taints = append(c.Taints, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
		}
		return c.YAML()
	}
	if j.url == "" {
		j.token = k3s.NewSecret()
	}
	sans, err := certificateNames(r.settings)
	if err != nil {
		return nil, err
	}
	return k3s.ServerConfig{
		Version: version, NodeName: m.Name, Token: j.token, ServerURL: j.url, TLSSANs: sans, Network: networkOf(r.settings.CNI), Registry: r.settings.ImageRegistry,
	}.YAML()
}

// networkOf is what k3s is told of a cluster's network.
func networkOf(c record.CNI) k3s.Network {
	n := k3s.Network{PodCIDR: c.PodCIDR, ServiceCIDR: c.ServiceCIDR, NoKubeProxy: c.KubeProxyReplacement}
	switch {
	case c.Plugin == record.Calico, c.Plugin == record.Cilium:
		n.Backend = k3s.BackendNone
	case c.Routing == record.HostGateway:
		n.Backend = k3s.BackendHostGW
	}
	return n
}

// certificateNames are the names that the certificate of the API is valid for beside the servers' own.
func certificateNames(settings record.Cluster) ([]string, error) {
	if settings.Endpoint == "" {
		return settings.TLSSANs, nil
	}
	_, host, err := k3s.ServerURL(settings.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("the cluster's endpoint: %w", err)
	}
	names := []string{host}
	for _, n := range settings.TLSSANs {
		if n != host {
			names = append(names, n)
		}
	}
	return names, nil
}

func roleOf(r record.Record) k3s.Role {
	if r.Role == record.Server {
		return k3s.Server
	}
	return k3s.Agent
}

// sealedSeed is the seed of a node that has joined: the same instance, so that cloud-init does nothing at the next
// boot, and no secret.
func sealedSeed(m machine.Machine) ([]byte, error) {
	iso, err := cloudinit.ISO(seedOf(m, nil).Scrubbed())
	if err != nil {
		return nil, fmt.Errorf("build the seed: %w", err)
	}
	return iso, nil
}

func seedOf(m machine.Machine, userData []byte) cloudinit.Seed {
	return cloudinit.Seed{
		InstanceID: m.UUID, LocalHostname: m.Name, UserData: userData, NetworkConfig: cloudinit.NetworkConfig(m.MAC),
	}
}
