package cluster

import (
	"context"
	"fmt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cloudinit"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// admit gives a prepared server its configuration, and then its turn.
func (r *run) admit(ctx context.Context, m machine.Machine) error {
	version, err := k3s.ParseVersion(r.settings.K3sVersion)
	if err != nil {
		return err
	}
	config, err := r.k3sConfig(ctx, m, version)
	if err != nil {
		return err
	}
	err = r.insist(ctx, func(ctx context.Context) error {
		if err := r.write(ctx, m, k3s.ConfigPath, config); err != nil {
			return err
		}
		return r.write(ctx, m, k3s.TurnPath, nil)
	})
	if err != nil {
		return fmt.Errorf("give it its configuration: %w", explainAgent(err))
	}
	return nil
}

// write makes a file in a guest that only root may read. The agent itself would make one that every user may write.
func (r *run) write(ctx context.Context, m machine.Machine, path string, content []byte) error {
	guest := r.engine.fleet.Guest(m)
	if _, err := guest.Run(ctx, "/usr/bin/install", "-D", "-m", "0600", "/dev/null", path); err != nil {
		return err
	}
	if len(content) == 0 {
		return nil
	}
	return guest.WriteFile(ctx, path, content)
}

// flush has a guest write to its disk what it has only in memory yet.
func (r *run) flush(ctx context.Context, m machine.Machine) error {
	_, err := r.engine.fleet.Guest(m).Run(ctx, "/usr/bin/sync")
	return err
}

// configure gives a node that runs its changed settings, and restarts k3s in it. Its record says meanwhile that nothing is
// known of them: k3s may well not start with the new ones.
func (r *run) configure(ctx context.Context, m *machine.Machine) error {
	files, err := r.settingsOf(*m)
	if err != nil {
		return err
	}
	rec := m.Record
	rec.Setup.Changing = true
	if err := r.setRecord(ctx, m, rec); err != nil {
		return fmt.Errorf("record that its settings change: %w", err)
	}
	for _, f := range files {
		if err := r.write(ctx, *m, f.Path, f.Content); err != nil {
			return fmt.Errorf("write its configuration: %w", explainAgent(err))
		}
	}
	if err := r.flush(ctx, *m); err != nil {
		return fmt.Errorf("write its configuration: %w", explainAgent(err))
	}
	if err := r.restart(ctx, *m); err != nil {
		return err
	}
	rec.Setup = record.Setup{Args: r.base.Setup.Args, Registries: r.base.Setup.Registries, UserData: rec.Setup.UserData}
	if rec.Role == record.Server {
		settings := r.settings
		rec.Cluster = &settings
	}
	if err := r.setRecord(ctx, m, rec); err != nil {
		return fmt.Errorf("record its settings: %w", err)
	}
	return nil
}

// restart restarts k3s in a node. systemd itself waits without limit for one that does not come up.
func (r *run) restart(ctx context.Context, m machine.Machine) error {
	guest, unit := r.engine.fleet.Guest(m), roleOf(m.Record).Unit()
	limit := fmt.Sprintf("%.0f", r.waits.Ready.Seconds())
	if _, err := guest.Run(ctx, "/usr/bin/timeout", limit, "systemctl", "restart", unit); err != nil {
		return &Failure{
			Err:    fmt.Errorf("restart k3s: %w", explainAgent(err)),
			Cause:  "k3s does not start with the settings that it was given.",
			Remedy: "correct them and apply again; the nodes whose turn had not come run on with their former ones.",
			Log:    unitLog(ctx, guest, unit),
		}
	}
	return nil
}

// settingsOf are the files of a node's settings that may change while it stands.
func (r *run) settingsOf(m machine.Machine) ([]cloudinit.File, error) {
	args, err := k3s.ArgsYAML(roleOf(m.Record), r.extra.Args)
	if err != nil {
		return nil, err
	}
	var files []cloudinit.File
	if was := m.Record.Setup; len(r.extra.Args)+len(was.Args) > 0 || was.Changing {
		files = append(files, cloudinit.File{Path: k3s.ArgsPath, Mode: 0o600, Content: args})
	}
	if r.extra.Registries != "" || m.Record.Setup.Registries != "" || m.Record.Setup.Changing {
		files = append(files, cloudinit.File{Path: k3s.RegistriesPath, Mode: 0o600, Content: []byte(r.extra.Registries)})
	}
	if m.Record.Role != record.Server || m.Record.Phase != record.Joined {
		return files, nil // A new server has these settings in its configuration.
	}
	sans, err := certificateNames(r.settings)
	if err != nil {
		return nil, err
	}
	server, err := k3s.ServerSettings{TLSSANs: sans, Registry: r.settings.ImageRegistry}.YAML()
	if err != nil {
		return nil, err
	}
	return append(files, cloudinit.File{Path: k3s.ServerSettingsPath, Mode: 0o600, Content: server}), nil
}
