package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab"
)

// ServeCommand is the command of the lab's program that runs a Service. It is no command for people.
const ServeCommand = "serve"

// Service is what works for a lab in the background, inside its LAN: the mirror of k3s and, behind the double, the control
// planes of the clusters.
type Service struct {
	Name string
	// ControlPlane and K3sDouble are programs; Artifacts, if set, stands in for both.
	ControlPlane, K3sDouble, Artifacts string
}

// args are the arguments with which the lab's program becomes this service.
func (s Service) args() []string {
	return []string{ServeCommand, s.Name, s.ControlPlane, s.K3sDouble, s.Artifacts}
}

// ServiceFrom reads what args wrote, without the command.
func ServiceFrom(args []string) (Service, error) {
	if len(args) != 4 {
		return Service{}, errors.New("this command is started by lab up")
	}
	return Service{Name: args[0], ControlPlane: args[1], K3sDouble: args[2], Artifacts: args[3]}, checkName(args[0])
}

// Run serves until ctx ends.
func (s Service) Run(ctx context.Context) error {
	return kubelab.Run(ctx, kubelab.Config{
		Listen:       serviceAddress,
		ListenTLS:    secureAddress,
		CAFile:       layout{s.Name}.caFile(),
		StateDir:     filepath.Join(layout{s.Name}.dataDir(), "kube"),
		ControlPlane: s.ControlPlane,
		K3sDouble:    s.K3sDouble,
		Artifacts:    s.Artifacts,
	})
}

// serviceAddress is where the service listens, and secureAddress where it does so by HTTPS.
var (
	serviceAddress = net.JoinHostPort(lanGateway.String(), "80")
	secureAddress  = net.JoinHostPort(lanGateway.String(), "443")
)

// awaitService waits until the service answers.
func (l layout) awaitService(ctx context.Context, s State) error {
	d, ok := s.daemon("service")
	if !ok {
		return errors.New("the lab's service was not started")
	}
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	lab := &Lab{State: s, layout: l}
	for {
		// The socket exists inside the LAN only, and so this asks from there.
		if lab.Command(ctx, "curl", "--silent", "--fail", "--output", "/dev/null", "--max-time", "5", lab.InstallScriptURL()).Run() == nil {
			return nil
		}
		if !d.Alive() {
			return fmt.Errorf("the lab's service ended%s", l.logTail(d.Name))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lab's service does not answer: %w%s", ctx.Err(), l.logTail(d.Name))
		case <-tick.C:
		}
	}
}
