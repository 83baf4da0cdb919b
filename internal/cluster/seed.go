package cluster

import (
	"context"
	"fmt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cloudinit"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// seed builds a node's cloud-init seed and writes it to its volume. The guest begins no new download in the last two
// thirds of the wait for its bootstrap, so that a failure is mostly told by the one who saw it.
func (r *run) seed(ctx context.Context, m machine.Machine) error {
	version, err := k3s.ParseVersion(r.settings.K3sVersion)
	if err != nil {
		return err
	}
	config, err := r.k3sConfig(ctx, m, version)
	if err != nil {
		return err
	}
	user := cloudinit.UserData{
		Hostname: m.Name,
		Files: []cloudinit.File{
			{Path: k3s.ConfigPath, Mode: 0o600, Content: config},
			{Path: k3s.BootstrapEnvPath, Mode: 0o600, Content: k3s.BootstrapEnv(k3s.Bootstrap{
				Instance: m.UUID, Role: roleOf(m), Version: version, InstallScriptURL: r.engine.options.InstallScriptURL,
				Retry: min(k3s.DefaultRetry, r.waits.Bootstrap/3),
			})},
			{Path: k3s.BootstrapPath, Mode: 0o755, Content: []byte(k3s.BootstrapScript())},
		},
		Commands:          [][]string{{"/bin/sh", k3s.BootstrapPath}},
		SSHAuthorizedKeys: r.settings.SSHAuthorizedKeys,
	}
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

// k3sConfig builds a node's config.yaml. A first server gets a new token; agents get the one that the server wrote,
// which pins the cluster's CA.
func (r *run) k3sConfig(ctx context.Context, m machine.Machine, version k3s.Version) ([]byte, error) {
	if m.Record.Role == record.Agent {
		j, err := r.joinInfo(ctx)
		if err != nil {
			return nil, err
		}
		return k3s.AgentConfig{NodeName: m.Name, ServerURL: j.url, Token: j.token}.YAML()
	}
	return k3s.ServerConfig{Version: version, NodeName: m.Name, Token: k3s.NewSecret()}.YAML()
}

func roleOf(m machine.Machine) k3s.Role {
	if m.Record.Role == record.Server {
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
