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
	// open is the number of connections that are not closed.
	open int
	// budget is how many more bytes towards the daemon pass before the connection is cut; negative is no limit.
	budget int64
	// silent keeps everything back.
	silent bool
	// refusals is how many more connections are closed at once.
	refusals int
	// swallowed is the number of a procedure whose next answer is cut off, or zero.
	swallowed uint32
	// withheld is the number of a procedure whose calls do not pass, or zero.
	withheld uint32
	// calls counts the calls that came, by procedure.
	calls map[uint32]int
	// moved counts all bytes, in both directions.
	moved int64
	// limit is how many bytes of a connection pass in one direction before hold, or its cut; zero is no limit.
	limit int64
	// hold is what connections at their limit wait for; where it is nil, they are cut.
	hold <-chan struct{}
	// old makes a daemon of one that knows no sparse streams.
	old bool
}

// newProxy puts a proxy before the hypervisor of the tests and returns it with the fleet behind it.
func newProxy(t *testing.T, g *ground) (*proxy, *Fleet) {
	t.Helper()
	p, uri := interpose(t, g.uri)
	return p, g.fleet(t, uri)
}

// interpose puts a proxy before a hypervisor and returns it with the URI that leads through it.
func interpose(t testing.TB, uri string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(uri)
	must(t, err)
	socket := u.Query().Get("socket")
	if u.Scheme != "qemu+unix" || socket == "" {
		t.Skipf("%s is not of the form qemu+unix:///system?socket=PATH, so that nothing can be put between", uriVariable)
	}
	file := filepath.Join(t.TempDir(), "sock")
	p := &proxy{target: socket, budget: -1, calls: map[uint32]int{}}
	p.listener, err = net.Listen("unix", file)
	must(t, err)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
		p.wg.Wait()
	})
	u.RawQuery = url.Values{"socket": {file}}.Encode()
	return p, u.String()
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
		p.open++
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(server, client, true) })
		p.wg.Go(func() {
			p.pass(client, server, false)
			p.mu.Lock()
			p.open--
			p.mu.Unlock()
		})
	}
}

// pass copies one direction.
func (p *proxy) pass(to io.WriteCloser, from io.ReadCloser, counted bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	var messages filter
	var total int64
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if total += int64(n); !p.within(total, int64(n)) {
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
		data := buffer[:n]
		if counted {
			p.age(data)
			data = messages.pass(data, p.admits)
		} else if p.swallows(data) {
			return
		}
		if _, err := to.Write(data); err != nil {
			return
		}
	}
}

// within counts n bytes of a connection that has had so many in all in this direction, and reports whether they pass.
func (p *proxy) within(total, n int64) bool {
	p.mu.Lock()
	p.moved += n
	limit, hold := p.limit, p.hold
	p.mu.Unlock()
	if limit == 0 || total <= limit {
		return true
	}
	if hold == nil {
		return false
	}
	<-hold
	return true
}

// stop sets a limit; see proxy.hold.
func (p *proxy) stop(limit int64, hold <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.hold = limit, hold
}

// connections is the number of connections that are not closed.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// traffic returns how many bytes have moved since the last time.
func (p *proxy) traffic() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved
	p.moved = 0
	return moved
}

// makeOld makes a daemon of the target that knows no sparse streams.
func (p *proxy) makeOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old = true
}

// age gives a call for a sparse stream a flag that no daemon knows. The flags come last in it.
func (p *proxy) age(data []byte) {
	const sparse, unknown = 1, 0x81
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.old || len(data) < headerSize || int(binary.BigEndian.Uint32(data)) != len(data) {
		return
	}
	procedure := binary.BigEndian.Uint32(data[procedureAt:])
	if last := &data[len(data)-1]; (procedure == procVolUpload || procedure == procVolDownload) && *last == sparse {
		*last = unknown
	}
}

// swallow sets the procedure whose next answer is cut off, and returns the one that was set.
func (p *proxy) swallow(procedure uint32) (last uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, p.swallowed = p.swallowed, procedure
	return last
}

// The header of a message has six words (https://libvirt.org/kbase/internals/rpc.html): length, program, version,
// procedure, type and serial.
const (
	headerSize          = 24
	procedureAt, typeAt = 12, 16
	typeCall, typeReply = 0, 1
)

// Procedures of libvirt's src/remote/remote_protocol.x.
const (
	procSetVcpusFlags  = 199 // REMOTE_PROC_DOMAIN_SET_VCPUS_FLAGS
	procSetMemoryFlags = 204 // REMOTE_PROC_DOMAIN_SET_MEMORY_FLAGS
	procVolUpload      = 208 // REMOTE_PROC_STORAGE_VOL_UPLOAD
	procVolDownload    = 209 // REMOTE_PROC_STORAGE_VOL_DOWNLOAD
	procUndefineFlags  = 231 // REMOTE_PROC_DOMAIN_UNDEFINE_FLAGS
	procVolResize      = 260 // REMOTE_PROC_STORAGE_VOL_RESIZE
	procSetMetadata    = 264 // REMOTE_PROC_DOMAIN_SET_METADATA
	procAllDomainStats = 344 // REMOTE_PROC_CONNECT_GET_ALL_DOMAIN_STATS
)

// swallows reports whether data from the daemon is the answer to cut off, and does so once.
func (p *proxy) swallows(data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallowed == 0 || len(data) < headerSize ||
		binary.BigEndian.Uint32(data[procedureAt:]) != p.swallowed || binary.BigEndian.Uint32(data[typeAt:]) != typeReply {
		return false
	}
	p.swallowed = 0
	return true
}

// admits counts a message to the daemon, if it is a call, and reports whether it may pass.
func (p *proxy) admits(header []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if binary.BigEndian.Uint32(header[typeAt:]) != typeCall {
		return true
	}
	procedure := binary.BigEndian.Uint32(header[procedureAt:])
	p.calls[procedure]++
	return procedure != p.withheld
}

// withhold keeps back the calls of a procedure from now on; zero is none.
func (p *proxy) withhold(procedure uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withheld = procedure
}

// count returns the calls that came since the last count, by procedure.
func (p *proxy) count() map[uint32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = map[uint32]int{}
	return calls
}

// filter lets some of the messages pass that come in one direction.
type filter struct {
	// header is that of the message that has begun, as far as it came; rest is how much of the message is to come.
	header []byte
	rest   int
	passes bool
}

// pass returns what of the data goes on.
func (f *filter) pass(data []byte, admits func(header []byte) bool) (out []byte) {
	for len(data) > 0 {
		if f.rest > 0 {
			n := min(f.rest, len(data))
			if f.passes {
				out = append(out, data[:n]...)
			}
			f.rest -= n
			data = data[n:]
			continue
		}
		n := min(headerSize-len(f.header), len(data))
		f.header = append(f.header, data[:n]...)
		data = data[n:]
		if len(f.header) < headerSize {
			continue
		}
		if f.passes = admits(f.header); f.passes {
			out = append(out, f.header...)
		}
		f.rest = int(binary.BigEndian.Uint32(f.header)) - headerSize
		f.header = f.header[:0]
	}
	return out
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
	if o := observe(t, f); len(o.Unreachable) != 0 || len(o.Machines) == 0 {
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
	g := newGround(t)
	p, f := newProxy(t, g)
	s := g.spec(t)
	m := machineOf(s)
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	p.swallow(procUndefineFlags)
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
