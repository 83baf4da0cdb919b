package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// balancer is the client-side load balancer at 127.0.0.1:6444: it passes TCP connections on to a server that answers,
// the last good one first.
type balancer struct {
	mu      sync.Mutex
	servers []string
}

// setServers replaces the list; the server in use stays first as long as it is in it. An empty list changes nothing.
func (b *balancer) setServers(servers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(servers) == 0 {
		return
	}
	servers = slices.Clone(servers)
	if len(b.servers) > 0 {
		if i := slices.Index(servers, b.servers[0]); i > 0 {
			servers[0], servers[i] = servers[i], servers[0]
		}
	}
	b.servers = servers
}

func (b *balancer) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.servers)
}

// failed puts a server last.
func (b *balancer) failed(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.servers, server); i >= 0 {
		b.servers = append(slices.Delete(b.servers, i, i+1), server)
	}
}

func (b *balancer) dial(ctx context.Context) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	var errs []error
	for _, s := range b.list() {
		c, err := d.DialContext(ctx, "tcp", s)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		b.failed(s)
	}
	return nil, errors.Join(errs...)
}

// listen opens the balancer's port.
func (b *balancer) listen(ctx context.Context, port int) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("starting the load balancer: %w", err)
	}
	return l, nil
}

// serve passes connections on until ctx ends.
func (b *balancer) serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting at the load balancer: %w", err)
		}
		wg.Go(func() { b.pass(ctx, c) })
	}
}

func (b *balancer) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := b.dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _ = client.Close(); _ = server.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[1], way[0])
			// One side has ended: so does the connection.
			_ = way[0].Close()
			_ = way[1].Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
