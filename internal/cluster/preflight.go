package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// preflightIn asks a guest whether it has what add-ons need of it. It is asked while it runs; a new one asks itself, before
// anything of k3s is in it.
func (r *run) preflightIn(ctx context.Context, m machine.Machine, p k3s.Preflight) error {
	guest := r.engine.fleet.Guest(m)
	program, args := p.Command()
	return r.insist(ctx, func(ctx context.Context) error {
		out, err := guest.Run(ctx, program, args...)
		var exit *guestagent.ExitError
		if errors.As(err, &exit) {
			return lacking(strings.TrimSpace(string(out)))
		}
		return explainAgent(err)
	})
}

// lacking is why a guest does not do for the storage of its cluster. The troubles are lines of the preflight's own.
func lacking(troubles string) error {
	return &Failure{
		Err:    fmt.Errorf("the guest does not have what the cluster's storage needs: %s", strings.ReplaceAll(troubles, "\n", "; ")),
		Remedy: "put what is missing into the golden image, or have it installed by extra_user_data (packages); a server that is not reached may be behind a firewall, or not run.",
	}
}

const (
	// nfsPort is the port of NFS servers (RFC 7530, section 3.1).
	nfsPort = 2049
	// dialTimeout bounds the dial of a server in a network that this machine is in.
	dialTimeout = 5 * time.Second
)

// refusedFromHere dials an NFS server where this machine is in its network, and returns that it refuses. Elsewhere nothing is dialled: only
// the guests can tell then, and do so themselves. So it is with a server that is silent: a network of this machine's own may have the same
// addresses as that of the nodes.
func refusedFromHere(ctx context.Context, nfs record.NFS) error {
	return dialNeighbour(ctx, nfs.Server, nfsPort)
}

func dialNeighbour(ctx context.Context, host string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addresses) == 0 || !neighbour(addresses[0].Unmap()) {
		return nil //nolint:nilerr // the guests may have another resolver
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(addresses[0].String(), strconv.Itoa(port)))
	switch {
	case err == nil:
		return conn.Close()
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil //nolint:nilerr // it may be another network
	}
	return &Failure{
		Err:    fmt.Errorf("the NFS server %s refuses connections to TCP port %d: %w", host, port, err),
		Cause:  "no NFS server runs there, or a firewall is before it. This machine is in its network, so the nodes will not reach it either.",
		Remedy: "start the NFS server, or correct csi.nfs.",
	}
}

// neighbour reports whether an address is in a network of one of this machine's interfaces.
func neighbour(address netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Masked().Contains(address) {
			return true
		}
	}
	return false
}

// Export tells what NFS export a storage pool is.
func (e *Engine) Export(ctx context.Context, pool string) (machine.Export, error) {
	return e.fleet.Export(ctx, pool)
}

// resolve completes settings whose NFS export is told by a storage pool, and could not be when they were planned.
func (e *Engine) resolve(ctx context.Context, settings record.Cluster) (record.Cluster, error) {
	nfs := settings.CSI.NFS
	if nfs == nil || nfs.Server != "" || nfs.Pool == "" {
		return settings, nil
	}
	export, err := e.Export(ctx, nfs.Pool)
	if err != nil {
		return settings, fmt.Errorf("find out what NFS export the storage pool %q is: %w", nfs.Pool, err)
	}
	told := *nfs
	told.Server, told.Path = export.Server, export.Path
	settings.CSI.NFS = &told
	return settings, nil
}
