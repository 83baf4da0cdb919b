package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirt"
)

const (
	// pieceSize is how much is written at once, and pieces how many such pieces are held between the stream that is read and
	// the one that is written. libvirt hands a stream out in smaller pieces, as messages come.
	pieceSize = sendSize
	pieces    = 16
	// atHole is what a stream that stops at holes returns in place of a length.
	atHole = -3
)

// reader is a stream that is read, and writer one that is written.
type (
	reader interface {
		RecvFlags(p []byte, flags libvirt.StreamRecvFlagsValues) (int, error)
		RecvHole(flags uint32) (int64, error)
	}
	writer interface {
		Send(p []byte) (int, error)
		SendHole(length int64, flags uint32) error
	}
)

// piece is some of a file: data, and the length of the hole after it.
type piece struct {
	data []byte
	hole int64
}

// pump copies one stream into another, as they are: the one is read while the other is written. It sees the end of ctx
// after each piece.
func pump(ctx context.Context, from reader, to writer, p *progress) error {
	g, ctx := errgroup.WithContext(ctx)
	filled, spare := make(chan piece, pieces), make(chan []byte, pieces)
	for range pieces {
		spare <- make([]byte, pieceSize)
	}
	g.Go(func() error {
		defer close(filled)
		return drain(ctx, from, spare, filled)
	})
	g.Go(func() error {
		for piece := range filled {
			if err := pour(ctx, to, piece); err != nil {
				return err
			}
			p.add(len(piece.data), piece.hole)
			spare <- piece.data[:pieceSize]
		}
		return nil
	})
	return g.Wait()
}

// drain reads a stream to its end.
func drain(ctx context.Context, from reader, spare <-chan []byte, filled chan<- piece) error {
	for {
		var buffer []byte
		select {
		case buffer = <-spare:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next, more, err := fill(from, buffer)
		if err != nil {
			return err
		}
		filled <- next // there is room: no more pieces are under way than buffers
		if !more {
			return nil
		}
	}
}

// fill reads a piece of a stream: as much as the buffer holds, or up to the next hole and over it, or the rest.
func fill(from reader, buffer []byte) (p piece, more bool, err error) {
	p.data = buffer[:0]
	for len(p.data) < len(buffer) {
		n, err := from.RecvFlags(buffer[len(p.data):], libvirt.STREAM_RECV_STOP_AT_HOLE)
		switch {
		case errors.Is(err, io.EOF):
			return p, false, nil
		case err != nil:
			return p, false, err
		case n == atHole:
			p.hole, err = from.RecvHole(0)
			return p, true, err
		case n < 0:
			return p, false, fmt.Errorf("the stream gave %d bytes", n)
		}
		p.data = buffer[:len(p.data)+n]
	}
	return p, true, nil
}

// pour writes a piece.
func pour(ctx context.Context, to writer, p piece) error {
	if err := send(ctx, to, p.data); err != nil || p.hole == 0 {
		return err
	}
	return to.SendHole(p.hole, 0)
}
