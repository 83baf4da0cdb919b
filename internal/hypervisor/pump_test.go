package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"libvirt.org/go/libvirt"
)

// tape is a stream of pieces, which end in err. A nil piece is a hole of 1 GiB.
type tape struct {
	pieces [][]byte
	err    error
}

func (s *tape) RecvFlags(p []byte, _ libvirt.StreamRecvFlagsValues) (int, error) {
	if len(s.pieces) == 0 {
		return 0, s.err
	}
	if s.pieces[0] == nil {
		return atHole, nil
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *tape) RecvHole(uint32) (int64, error) {
	s.pieces = s.pieces[1:]
	return gib, nil
}

// sink is a stream that takes at most 100 KiB at once.
type sink struct {
	data  []byte
	holes []int // where in data
	// before is called before data is taken, and may refuse it.
	before func(s *sink) error
}

func (s *sink) Send(p []byte) (int, error) {
	if s.before != nil {
		if err := s.before(s); err != nil {
			return 0, err
		}
	}
	n := min(len(p), 100<<10)
	s.data = append(s.data, p[:n]...)
	return n, nil
}

func (s *sink) SendHole(length int64, _ uint32) error {
	if length != gib {
		return errors.New("another hole")
	}
	s.holes = append(s.holes, len(s.data))
	return nil
}

func TestPump(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than all buffers hold
	broke := errors.New("it broke")
	tests := map[string]struct {
		from   tape
		before func(*sink) error
		holes  int
		err    error
	}{
		"data":                {from: tape{pieces: [][]byte{large, []byte("end")}, err: io.EOF}},
		"holes":               {from: tape{pieces: [][]byte{nil, []byte("a"), nil, large, nil}, err: io.EOF}, holes: 3},
		"nothing":             {from: tape{err: io.EOF}},
		"what is read breaks": {from: tape{pieces: [][]byte{large}, err: broke}, err: broke},
		"what is written to breaks": {from: tape{pieces: [][]byte{large, large}, err: io.EOF}, err: broke, before: func(s *sink) error {
			if len(s.data) > 1<<20 {
				return broke
			}
			return nil
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := bytes.Join(tt.from.pieces, nil)
			to := sink{before: tt.before}
			var p progress
			err := pump(t.Context(), &tt.from, &to, &p)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if tt.err != nil {
				return
			}
			if !bytes.Equal(to.data, want) || len(to.holes) != tt.holes {
				t.Errorf("%d bytes with holes at %d arrived, of %d", len(to.data), to.holes, len(want))
			}
			if p.sent.Load() != int64(len(want)) || p.at.Load() != int64(len(want)+tt.holes*gib) {
				t.Errorf("%d bytes are counted, %d with holes", p.sent.Load(), p.at.Load())
			}
		})
	}
}

func TestPumpEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to := sink{before: func(*sink) error { cancel(); return nil }}
	err := pump(ctx, &tape{pieces: [][]byte{make([]byte, 16<<20)}, err: io.EOF}, &to, &progress{})
	wantError(t, err, context.Canceled)
	if len(to.data) > pieceSize {
		t.Errorf("%d bytes were sent after the end", len(to.data))
	}
}
