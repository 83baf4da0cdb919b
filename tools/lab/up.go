package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/flock"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/proc"
)

// serviceStart bounds the start of the mirror.
const serviceStart = time.Minute

// Config says which lab to make.
type Config struct {
	// Name tells labs on one machine apart; empty is DefaultName.
	Name string
	// Hypervisors is how many libvirtd daemons there are, at least 1 (0 means 1).
	Hypervisors int
	// Artifacts is a directory of real k3s releases for the mirror to serve; empty serves the double.
	Artifacts string
	// KVM runs the VMs with KVM, which must work on this machine; otherwise they are emulated.
	KVM bool
	// BrokenTemplate adds a second golden image, whose guest agent is masked.
	BrokenTemplate bool
	// NFS adds a file server to the LAN.
	NFS bool
	// Log gets a line for every step that takes time; nil means silence.
	Log func(format string, args ...any)
}

func (c Config) validate() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Hypervisors == 0 {
		c.Hypervisors = 1
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	if err := checkName(c.Name); err != nil {
		return c, err
	}
	if c.Hypervisors < 1 || c.Hypervisors > maxHypervisors {
		return c, fmt.Errorf("a lab has 1 to %d hypervisors, not %d", maxHypervisors, c.Hypervisors)
	}
	if c.Artifacts != "" {
		dir, err := filepath.Abs(c.Artifacts)
		if err != nil {
			return c, fmt.Errorf("the directory of artifacts: %w", err)
		}
		if info, err := os.Stat(dir); err != nil {
			return c, fmt.Errorf("the directory of artifacts: %w", err)
		} else if !info.IsDir() {
			return c, fmt.Errorf("the directory of artifacts: %s is none", dir)
		}
		c.Artifacts = dir
	}
	return c, nil
}

// Up makes a lab: first what is missing in the cache, then the lab itself. What is left of an earlier lab of that name is
// removed first, but one that stands is not touched. When Up fails it leaves nothing.
func Up(ctx context.Context, c Config) (*Lab, error) {
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	if err := Check(); err != nil {
		return nil, err
	}
	l := layout{c.Name}
	unlock, err := flock.Lock(ctx, l.lockFile())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := Open(c.Name); err == nil {
		return nil, fmt.Errorf("lab %q stands already: use it, or take it down first", c.Name)
	}
	if err := down(ctx, l); err != nil {
		return nil, fmt.Errorf("removing what is left of an earlier lab %q: %w", c.Name, err)
	}
	parts, err := Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	lab, err := build(ctx, l, c, parts)
	if err != nil {
		// The caller's context may be the reason of the failure; what stands must go all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("bringing lab %q up: %w", c.Name, err), down(ctx, l))
	}
	return lab, nil
}

func build(ctx context.Context, l layout, c Config, p Parts) (*Lab, error) {
	began := time.Now()
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	s := State{
		Version: stateVersion, Name: c.Name, BootID: boot, VirtType: "qemu",
		Template: p.Volume, BrokenTemplate: p.BrokenVolume,
		MirrorURL: "http://" + lanGateway.String(), Artifacts: c.Artifacts, NFS: c.NFS,
	}
	if c.KVM {
		s.VirtType = "kvm"
	}
	for i := range c.Hypervisors {
		s.Hypervisors = append(s.Hypervisors, l.newHypervisor(i))
	}
	if err := s.write(); err != nil {
		return nil, err
	}
	if err := makeLAN(ctx, l, s.Hypervisors); err != nil {
		return nil, err
	}
	if err := s.startDaemons(ctx, l, c, p); err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	for _, h := range s.Hypervisors {
		d, _ := s.daemon(daemonName(h.Name))
		group.Go(func() error { return l.setUpHypervisor(gctx, h, d, s) })
	}
	group.Go(func() error { return l.awaitService(gctx, s) })
	if c.NFS {
		group.Go(func() error { return l.awaitNFS(gctx, s) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	s.Ready = true
	if err := s.write(); err != nil {
		return nil, err
	}
	c.Log("lab %q stands, %.1f s", c.Name, time.Since(began).Seconds())
	return &Lab{State: s, layout: l}, nil
}

// startDaemons starts the LAN's server, the mirror and the hypervisors, and writes each down as soon as it runs.
func (s *State) startDaemons(ctx context.Context, l layout, c Config, p Parts) error {
	note := func(d Daemon, err error) error {
		if err != nil {
			return err
		}
		s.Processes = append(s.Processes, d)
		return s.write()
	}
	conf := filepath.Join(l.dataDir(), "dnsmasq.conf")
	if err := os.WriteFile(conf, []byte(dnsmasqConf(l)), 0o644); err != nil {
		return fmt.Errorf("setting up the LAN: %w", err)
	}
	lan := []string{"ip", "netns", "exec", l.lanNetns()}
	if err := note(l.start("dnsmasq", append(lan, "dnsmasq", "--keep-in-foreground", "--conf-file="+conf)...)); err != nil {
		return err
	}
	service := Service{Name: c.Name, ControlPlane: p.ControlPlane, K3sDouble: p.K3sDouble, Artifacts: c.Artifacts}
	if err := note(l.start("service", append(append(lan, p.Lab), service.args()...)...)); err != nil {
		return err
	}
	if c.NFS {
		if err := note(l.startNFS(ctx, p)); err != nil {
			return err
		}
	}
	for _, h := range s.Hypervisors {
		if err := l.prepareDirs(h); err != nil {
			return err
		}
	}
	// A pool's volumes are what its directory holds when its daemon starts.
	if err := l.placeImages(ctx, p); err != nil {
		return err
	}
	for _, h := range s.Hypervisors {
		if err := note(l.startHypervisor(h, c.KVM)); err != nil {
			return err
		}
	}
	return nil
}
