package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

const (
	// dialTimeout bounds a caller's wait for a connection.
	dialTimeout = 30 * time.Second
	// patience is how long a hypervisor that answered before may refuse connections: its daemon may be restarting.
	patience = 10 * time.Second
	// redialPause is the pause between two attempts within patience.
	redialPause = 500 * time.Millisecond
	// keepAliveSeconds and keepAliveCount end a connection whose peer has been silent for half a minute.
	keepAliveSeconds = 5
	keepAliveCount   = 6
)

// link is one connection and the number of calls that use it. It is closed when the host has dropped it and the last
// call has left.
type link struct {
	conn  *libvirt.Connect
	users int
}

// alive asks the connection's own state, without a call to the hypervisor.
func (l *link) alive() bool {
	ok, err := l.conn.IsAlive()
	return err == nil && ok
}

// close closes the connection. One that broke may refuse that, which alters nothing.
func (l *link) close() { _, _ = l.conn.Close() }

// dial is an attempt to connect that all callers share. It ends when libvirt's attempt does: keep-alive, which would
// bound that, begins on the finished connection only.
type dial struct {
	done chan struct{}
	err  error
}

// connect returns the link, which the caller leaves. It waits at most dialTimeout, however long an attempt takes.
func (h *host) connect(ctx context.Context) (*link, error) {
	timer := time.NewTimer(dialTimeout)
	defer timer.Stop()
	for {
		l, attempt := h.current()
		if l != nil {
			return l, nil
		}
		select {
		case <-attempt.done:
			if attempt.err != nil {
				return nil, attempt.err
			}
		case <-timer.C:
			return nil, fmt.Errorf("%w: no connection to %s within %s", machine.ErrUnreachable, publicURI(h.config.URI), dialTimeout)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// current enters the link if there is one that lives, or else returns the attempt to make one.
func (h *host) current() (*link, *dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != nil && h.link.alive() {
		h.link.users++
		return h.link, nil
	}
	if l := h.link; l != nil {
		h.link = nil
		if l.users == 0 {
			defer l.close()
		}
	}
	if h.dialling == nil {
		h.dialling = &dial{done: make(chan struct{})}
		go h.dial(h.dialling, h.answered)
	}
	return nil, h.dialling
}

// leave ends a call's use of a link.
func (h *host) leave(l *link) {
	h.mu.Lock()
	l.users--
	last := l.users == 0 && h.link != l
	h.mu.Unlock()
	if last {
		l.close()
	}
}

// drop keeps new calls off a link.
func (h *host) drop(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l {
		h.link = nil
	}
}

// dial makes the link.
func (h *host) dial(d *dial, answered bool) {
	l, err := open(h.config.URI)
	for began := time.Now(); err != nil && answered && time.Since(began) < patience; l, err = open(h.config.URI) {
		time.Sleep(redialPause)
	}
	h.mu.Lock()
	h.dialling, d.err = nil, err
	if err == nil {
		h.link, h.answered = l, true
	}
	h.mu.Unlock()
	close(d.done)
}

// open connects to a hypervisor.
func open(uri string) (*link, error) {
	conn, err := connect(uri)
	switch {
	case err == nil:
		return &link{conn: conn}, nil
	case withoutLibrary(err):
		return nil, fmt.Errorf("%w: %s", machine.ErrUnreachable, libraryHint)
	}
	return nil, fmt.Errorf("%w: connect to %s: %s", machine.ErrUnreachable, publicURI(uri), redact(err.Error(), uri))
}

func connect(uri string) (*libvirt.Connect, error) {
	if err := startLoop(); err != nil {
		return nil, err
	}
	conn, err := libvirt.NewConnect(dialURI(uri))
	if err != nil {
		return nil, plain(err)
	}
	err = conn.SetKeepAlive(keepAliveSeconds, keepAliveCount)
	if err != nil && !errors.Is(err, libvirt.ERR_NO_SUPPORT) { // a driver inside this process has no peer to lose
		_, _ = conn.Close()
		return nil, plain(err)
	}
	return conn, nil
}
