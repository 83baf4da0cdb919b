package hypervisor

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The golden image, as POOL/VOLUME, and the network of the test below.
const (
	imageVariable   = "COCKPIT_TEST_LIBVIRT_TEMPLATE"
	networkVariable = "COCKPIT_TEST_LIBVIRT_NETWORK"
)

// bootTime bounds the boot of a guest whose CPU is emulated on a busy machine.
const bootTime = 6 * time.Minute

// TestLibvirtdGuest boots the golden image and speaks with its agent.
func TestLibvirtdGuest(t *testing.T) {
	pool, volume, ok := strings.Cut(os.Getenv(imageVariable), "/")
	network := os.Getenv(networkVariable)
	if !ok || network == "" {
		t.Skipf("%s is not of the form POOL/VOLUME, or %s is not set: they take the lab's golden image and a network with DHCP", imageVariable, networkVariable)
	}
	g := newGround(t)
	s := g.spec(t)
	s.Network, s.MAC = network, "52:54:00:6b:00:"+s.UUID[:2]
	s.Record.Template = record.Template{Pool: pool, Volume: volume}
	s.Record.Shape = record.Shape{VCPUs: 2, MemoryMiB: 1024, DiskGiB: 6, StoragePool: g.vms, Clone: record.Overlay}
	m := machineOf(s)
	must(t, g.Define(t.Context(), s))
	must(t, g.CloneDisk(t.Context(), s))
	must(t, g.WriteSeed(t.Context(), m, nil)) // none: cloud-init falls back to DHCP
	must(t, g.Start(t.Context(), m))

	guest := g.Guest(m)
	await(t, "agent", func() bool {
		err := guest.Ping(t.Context())
		if err != nil && !errors.Is(err, guestagent.ErrNotConnected) {
			t.Fatal(err)
		}
		return err == nil
	})
	if connected, err := guest.Connected(t.Context()); !connected || err != nil {
		t.Errorf("connected %t, %v", connected, err)
	}
	await(t, "address", func() bool {
		addresses, err := guest.Addresses(t.Context(), strings.ToUpper(s.MAC))
		must(t, err)
		return len(addresses) > 0
	})

	_, err := guest.ReadFile(t.Context(), "/no/such/file")
	wantError(t, err, fs.ErrNotExist, "/no/such/file")
	if got, err := guest.ReadFile(t.Context(), "/proc/sys/kernel/ostype"); err != nil || string(got) != "Linux\n" {
		t.Errorf("read %q, %v", got, err)
	}
	// Pieces of 1 MiB, the last of them short.
	if _, err := guest.Run(t.Context(), "/bin/sh", "-c", "seq 400000 > /run/numbers"); err != nil {
		t.Fatal(err)
	}
	got, err := guest.ReadFile(t.Context(), "/run/numbers")
	if err != nil || len(got) != 2688895 || !bytes.HasPrefix(got, []byte("1\n2\n")) || !bytes.HasSuffix(got, []byte("\n400000\n")) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}

	out, err := guest.Run(t.Context(), "/bin/sh", "-c", "sleep 2; echo out; echo err >&2")
	if err != nil || string(out) != "out\nerr\n" {
		t.Errorf("output %q, %v", out, err)
	}
	out, err = guest.Run(t.Context(), "/bin/sh", "-c", "echo no; exit 3")
	var exit *guestagent.ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || string(out) != "no\n" {
		t.Errorf("output %q, %v", out, err)
	}
	_, err = guest.Run(t.Context(), "/bin/sh", "-c", "kill -9 $$")
	if !errors.As(err, &exit) || exit.Signal != 9 {
		t.Errorf("%v", err)
	}
	_, err = guest.Run(t.Context(), "/no/such/program")
	wantError(t, err, nil, "/no/such/program")

	began := time.Now()
	must(t, g.Stop(t.Context(), m, bootTime))
	if took := time.Since(began); took >= bootTime {
		t.Errorf("the guest did not power itself off within %s", took)
	}
	if got := g.observed(t, s.UUID); got.Power != machine.Stopped {
		t.Errorf("stopped, it is %s", got.Power)
	}
}
