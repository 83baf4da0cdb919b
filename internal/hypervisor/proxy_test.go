package hypervisor

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// proxy stands between a fleet and a libvirtd, and breaks what passes.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	// budget is how many more bytes towards the daemon pass before the connection is cut; negative is no limit.
	budget int64
	// silent keeps everything back.
	silent bool
	// refusals is how many more connections are closed at once.
	refusals int
	// swallowed is the number of a procedure whose next answer is cut off, or zero.
	swallowed uint32
}

// newProxy puts a proxy before the hypervisor of the tests and returns it with the fleet behind it.
func newProxy(t *testing.T, g *ground) (*proxy, *Fleet) {
	t.Helper()
	u, err := url.Parse(g.uri)
	must(t, err)
	socket := u.Query().Get("socket")
	if u.Scheme != "qemu+unix" || socket == "" {
		t.Skipf("%s is not of the form qemu+unix:///system?socket=PATH, so that nothing can be put between", uriVariable)
	}
	file := filepath.Join(t.TempDir(), "sock")
	p := &proxy{target: socket, budget: -1}
	p.listener, err = net.Listen("unix", file)
	must(t, err)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	u.RawQuery = url.Values{"socket": {file}}.Encode()
	return p, g.fleet(t, u.String())
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if left := p.refuse(-1); left >= 0 {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(server, client, true) })
		p.wg.Go(func() { p.pass(client, server, false) })
	}
}

// pass copies one direction.
func (p *proxy) pass(to io.WriteCloser, from io.ReadCloser, counted bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		silent := p.silent
		if counted && p.budget >= 0 {
			if p.budget -= int64(n); p.budget < 0 {
				p.budget = 0
				p.mu.Unlock()
				return
			}
		}
		p.mu.Unlock()
		if silent {
			continue
		}
		if !counted && p.swallows(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// swallow sets the procedure whose next answer is cut off, and returns the one that was set.
func (p *proxy) swallow(procedure uint32) (last uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, p.swallowed = p.swallowed, procedure
	return last
}

// swallows reports whether data from the daemon is the answer to cut off, and does so once. The header of a message has
// six words (https://libvirt.org/kbase/internals/rpc.html): length, program, version, procedure, type and serial.
func (p *proxy) swallows(data []byte) bool {
	const headerSize, procedureAt, typeAt, reply = 24, 12, 16, 1
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallowed == 0 || len(data) < headerSize ||
		binary.BigEndian.Uint32(data[procedureAt:]) != p.swallowed || binary.BigEndian.Uint32(data[typeAt:]) != reply {
		return false
	}
	p.swallowed = 0
	return true
}

// set alters what passes.
func (p *proxy) set(budget int64, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget, p.silent = budget, silent
}

// refuse adds to the number of connections that are closed at once and returns it.
func (p *proxy) refuse(more int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.refusals + more
	p.refusals = max(left, 0)
	return left
}

// cut breaks all connections, as a restart of the daemon does.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func TestLibvirtdRestart(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	for range 3 {
		must(t, f.Define(t.Context(), s))
		p.cut()
	}
	p.refuse(2) // the daemon is not back yet
	if o := f.Observe(t.Context()); len(o.Unreachable) != 0 || len(o.Machines) == 0 {
		t.Errorf("observed %+v", o)
	}
	if left := p.refuse(0); left != 0 {
		t.Errorf("%d connections were not refused", left)
	}
}

func TestLibvirtdUploadIsCut(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	m := machineOf(s)
	must(t, f.Define(t.Context(), s))
	f.hosts["hv-a"].answered = false // or else it is given time to come back
	p.set(seedSize*6/10, false)
	// What begins anew on a second connection is cut there too: nothing passes any more.
	err := f.WriteSeed(t.Context(), m, []byte("seed"))
	wantError(t, err, machine.ErrUnreachable, "write the seed")
	p.set(-1, false)
	must(t, f.WriteSeed(t.Context(), m, []byte("seed")))
	if _, content := g.inspect(t, g.vms, machine.SeedVolume(m.Name, m.UUID)); len(content) != seedSize || string(content[:5]) != "seed\x00" {
		t.Errorf("the seed has %d bytes", len(content))
	}
}

// The connection breaks when the domain is undefined already: that it is not found any more must not count as an error.
func TestLibvirtdDeleteIsCutAtItsEnd(t *testing.T) {
	const undefineFlags = 231 // REMOTE_PROC_DOMAIN_UNDEFINE_FLAGS in libvirt's src/remote/remote_protocol.x
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	m := machineOf(s)
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	p.swallow(undefineFlags)
	must(t, f.Delete(t.Context(), m))
	if p.swallow(0) != 0 {
		t.Error("nothing was cut off")
	}
	if left := volumes(t, g.Fleet, "hv-a", g.vms); len(left) != 0 {
		t.Errorf("volumes %q are left", left)
	}
}

func TestLibvirtdSilence(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	must(t, f.Define(t.Context(), s))
	p.set(-1, true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wantError(t, f.Start(ctx, machineOf(s)), context.DeadlineExceeded, "libvirt has not answered")
	p.set(-1, false)
	p.cut()
	must(t, f.Define(t.Context(), s))
}

func TestLibvirtdAgentCommandsAreNotRepeated(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	must(t, f.Define(t.Context(), s))
	p.set(0, false) // the connection breaks under the next request
	err := f.Guest(machineOf(s)).Ping(t.Context())
	wantError(t, err, guestagent.ErrNotConnected, "the connection broke")
	wantError(t, err, machine.ErrUnreachable)
}
