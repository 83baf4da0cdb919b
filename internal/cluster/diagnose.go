package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// evidenceTimeout bounds the reading of evidence after something failed.
const evidenceTimeout = 20 * time.Second

// logLines is how much of a guest's log stands in an error.
const logLines = 20

// Texts that more than one failure needs.
const (
	imageRemedy = "check that the golden image has qemu-guest-agent installed and enabled; the node's serial console is logged on its hypervisor."
	netRemedy   = "check the DHCP server of the network, and that the golden image leaves its network to cloud-init."
)

// diagnoseAgent tells the reasons apart why a guest's agent was not heard or had no address.
func (r *run) diagnoseAgent(ctx context.Context, m machine.Machine, err error, answered bool, waited time.Duration) error {
	if !errors.Is(err, errWait) {
		return explainAgent(err)
	}
	waited = waited.Round(time.Second)
	if answered {
		return &Failure{
			Err:         fmt.Errorf("waited %s for an address: the guest agent answers, but the interface %s has none", waited, m.MAC),
			Cause:       "no DHCP server answered on the node's network, or the guest does not configure that interface.",
			Remedy:      netRemedy,
			replaceable: true,
		}
	}
	ectx, cancel := evidence(ctx)
	defer cancel()
	connected, cerr := r.engine.fleet.Guest(m).Connected(ectx)
	switch {
	case errors.Is(cerr, guestagent.ErrNotRunning), errors.Is(cerr, guestagent.ErrPaused):
		return explainAgent(cerr)
	case cerr != nil:
		return &Failure{
			Err:    fmt.Errorf("waited %s for the guest agent, and the hypervisor does not tell the state of its channel: %w", waited, cerr),
			Cause:  "the hypervisor or its libvirt daemon went away meanwhile.",
			Remedy: "look after the hypervisor and apply again.",
		}
	case connected:
		return &Failure{
			Err:         fmt.Errorf("waited %s for the guest agent: its channel is connected, but it does not answer", waited),
			Cause:       "the agent hangs, or the guest is starved of CPU.",
			Remedy:      "look at the load of the hypervisor and apply again.",
			replaceable: true,
		}
	}
	return &Failure{
		Err:         fmt.Errorf("waited %s for the guest agent: its channel is disconnected, so no agent runs in the guest", waited),
		Cause:       "the golden image lacks the package qemu-guest-agent, its service is disabled or masked, or the guest did not boot.",
		Remedy:      imageRemedy,
		replaceable: true,
	}
}

func stopped() error {
	return &Failure{
		Err:         errors.New("the VM powered itself off while it was booting"),
		Cause:       "the guest crashed or was shut down from inside, or the hypervisor ended it.",
		Remedy:      "look at the node's serial console and at the hypervisor's log of the VM, both in /var/log/libvirt/qemu.",
		replaceable: true,
	}
}

// explainAgent gives errors of the guest agent their cause and remedy.
func explainAgent(err error) error {
	switch {
	case errors.Is(err, guestagent.ErrNotRunning):
		return stopped()
	case errors.Is(err, guestagent.ErrPaused):
		return &Failure{
			Err:    errors.New("the VM is paused"),
			Cause:  "its hypervisor halted it, mostly because the storage pool of its disk is full, or somebody suspended it.",
			Remedy: "make room in the storage pool of its disk and apply again, which resumes it.",
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, guestagent.ErrDisabled):
		return &Failure{
			Err:    err,
			Cause:  "the image's configuration of qemu-guest-agent forbids what this provider needs, or SELinux does, as in images of the RHEL family.",
			Remedy: "allow guest-exec, guest-exec-status and guest-file-* in the image (/etc/sysconfig/qemu-ga or /etc/qemu/qemu-ga.conf), and with SELinux set the booleans virt_qemu_ga_run_unconfined and virt_qemu_ga_read_nonsecurity_files.",
		}
	}
	return err
}

// checkSeedRead looks for evidence that cloud-init has finished without our seed. It is asked while there is no marker.
func checkSeedRead(ctx context.Context, guest Guest) error {
	raw, err := guest.ReadFile(ctx, "/run/cloud-init/result.json")
	if err != nil {
		return nil //nolint:nilerr // cloud-init has not finished, or cannot be asked yet: no evidence
	}
	// It may have finished since the marker was looked for.
	if _, err := guest.ReadFile(ctx, k3s.MarkerPath); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // there is a marker, or nothing is known
	}
	var result struct {
		V1 struct {
			Datasource string   `json:"datasource"`
			Errors     []string `json:"errors"`
		} `json:"v1"`
	}
	if json.Unmarshal(raw, &result) != nil {
		return nil
	}
	if strings.Contains(result.V1.Datasource, "DataSourceNone") || !strings.Contains(result.V1.Datasource, "NoCloud") {
		return &Failure{
			Err:    fmt.Errorf("cloud-init finished without reading the node's seed (it used %q)", result.V1.Datasource),
			Cause:  "the seed is on a virtio disk; the image's kernel has no virtio_blk or iso9660 module, or its cloud-init is not allowed the NoCloud datasource.",
			Remedy: "allow NoCloud in the image (datasource_list: [NoCloud, None] in /etc/cloud/cloud.cfg.d), or use a kernel with these modules.",
		}
	}
	return &Failure{
		Err:    errors.New("cloud-init finished, but the bootstrap did not run"),
		Cause:  "the image's cloud-init does not run write_files and runcmd.",
		Remedy: "put write_files, runcmd and scripts_user into the module lists of the image's /etc/cloud/cloud.cfg.",
		Log:    strings.Join(result.V1.Errors, "\n"),
	}
}

// bootstrapFailure explains a bootstrap that says itself that it failed.
func bootstrapFailure(ctx context.Context, guest Guest, marker k3s.Marker) error {
	if marker.Step == k3s.StepPreflight && marker.Message != "" {
		return lacking(marker.Message)
	}
	f := &Failure{Err: fmt.Errorf("the bootstrap in the guest failed at step %q with exit code %d", marker.Step, marker.RC), Log: guestLog(ctx, guest)}
	switch {
	case marker.RC == 127 && marker.Step == k3s.StepDownload:
		f.Cause = "the image has neither curl nor wget."
		f.Remedy = "install curl in the golden image."
	case marker.RC == 65 && marker.Step == k3s.StepDownload:
		f.Cause = "what the URL of the install script answers with is no shell script: a proxy or a captive portal may have put its own page there."
		f.Remedy = "open k3s.install_script_url from a machine on the node's network."
	case marker.Step == k3s.StepDownload:
		f.Cause = "the guest could not download the k3s install script: the URL is wrong, the server answered with an error, or the guest has no way to it."
		f.Remedy = "check k3s.install_script_url in the provider's configuration from a machine on the node's network."
	case marker.Step == k3s.StepInstall:
		f.Cause = "the k3s install script failed: the release does not exist, or its download is blocked."
		f.Remedy = "check k3s_version and the log below."
	case marker.Step == k3s.StepVersion:
		f.Cause = "the installed k3s is not the wanted version: the install script does not honour INSTALL_K3S_VERSION."
		f.Remedy = "use the install script of the k3s project or a mirror of it."
	case marker.Step == k3s.StepCgroup:
		f.Cause = "the image boots with cgroup v1, which Kubernetes refuses from 1.35 on."
		f.Remedy = "use an image with the unified cgroup hierarchy (cgroup v2)."
	}
	return f
}

func (r *run) diagnoseBootstrap(ctx context.Context, guest Guest, last k3s.Marker) error {
	f := &Failure{replaceable: true, Remedy: "look at the log below, and apply again with a longer timeout if the guest is only slow.", Log: guestLog(ctx, guest)}
	if last.State == "" {
		f.Err = fmt.Errorf("waited %s for the bootstrap in the guest, which has not begun", r.waits.Bootstrap)
		f.Cause = "cloud-init is still busy or hangs in an earlier stage."
		return f
	}
	f.Err = fmt.Errorf("waited %s for the bootstrap in the guest, which is still at step %q", r.waits.Bootstrap, last.Step)
	f.Cause = "the download of k3s is slow or hangs."
	return f
}

// diagnoseReady tells why a node is not Ready.
func (r *run) diagnoseReady(ctx context.Context, m machine.Machine, last error) error {
	f := &Failure{
		Err:         fmt.Errorf("waited %s for the node to be Ready: %w", r.waits.Ready, last),
		Log:         unitLog(ctx, r.engine.fleet.Guest(m), roleOf(m.Record).Unit()),
		replaceable: m.Record.Role == record.Server || errors.Is(last, errNotReady),
	}
	if down := r.networkTrouble(ctx, last); down != nil {
		f.Err = fmt.Errorf("%w; %w", f.Err, down)
		f.Cause = "the network plugin does not run on it: what its pods wait for is told above."
		f.Remedy = "see to it that the nodes can get the plugin's images, correct cni if its values are at fault, and apply again."
		f.replaceable = false
		return f
	}
	switch {
	case errors.Is(last, errNotReady):
		f.Cause = "k3s does not come up on the node, or cannot join."
		f.Remedy = "read the log of its service below."
	case m.Record.Role == record.Server:
		f.Cause = "k3s does not come up on the server, or this machine has no way to port 6443 of the server's address."
		f.Remedy = "read the log of its service below, and run Terraform on a machine that reaches the network of the nodes."
	default:
		f.Cause = "the cluster's API does not answer."
		f.Remedy = "look after the cluster's servers first."
	}
	return f
}

// networkTrouble tells why the cluster's network plugin does not run where a node lacks it, nil where it runs, is part of k3s, or cannot
// be asked.
func (r *run) networkTrouble(ctx context.Context, last error) error {
	if !errors.Is(last, errNoNetwork) {
		return nil
	}
	ectx, cancel := evidence(ctx)
	defer cancel()
	spec := addonsOf(r.settings, r.servers, 0)
	for _, a := range spec.Addons() {
		var down *Unavailable
		if a.IsNetwork() && errors.As(r.withAddons(ectx, func(k Addons) error { return k.Health(ectx, spec, a) }), &down) {
			return down
		}
	}
	return nil
}

// guestLog returns the end of the bootstrap's log, or "".
func guestLog(ctx context.Context, guest Guest) string {
	ectx, cancel := evidence(ctx)
	defer cancel()
	raw, err := guest.ReadFile(ectx, k3s.LogPath)
	if err != nil {
		return ""
	}
	return tail(raw)
}

// unitLog returns the end of a unit's journal, or "".
func unitLog(ctx context.Context, guest Guest, unit string) string {
	ectx, cancel := evidence(ctx)
	defer cancel()
	out, err := guest.Run(ectx, "/usr/bin/journalctl", "--unit", unit, "--lines", fmt.Sprint(logLines), "--no-pager", "--output", "cat")
	if err != nil {
		return ""
	}
	return tail(out)
}

// token is a join token, whose secret must not come to light should a guest's log hold one.
var token = regexp.MustCompile(`K10[0-9a-f]{64}::\S+`)

func tail(raw []byte) string {
	raw = token.ReplaceAll(raw, []byte("K10…"))
	lines := bytes.Split(bytes.TrimRight(raw, "\n"), []byte("\n"))
	if len(lines) > logLines {
		lines = lines[len(lines)-logLines:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}

// evidence gives the reading of evidence a bound of its own: the operation's time may just have run out.
func evidence(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), evidenceTimeout)
}
