package guestagent

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"
)

// chunk renders an answer to guest-file-read.
func chunk(data []byte, eof bool) step {
	return step{command: cmdFileRead, reply: fmt.Sprintf(`{"return":{"count":%d,"buf-b64":%q,"eof":%t}}`,
		len(data), base64.StdEncoding.EncodeToString(data), eof)}
}

var (
	opened = step{command: cmdFileOpen, reply: `{"return":1001}`}
	closed = step{command: cmdFileClose, reply: `{"return":{}}`}
)

func TestReadFile(t *testing.T) {
	source := bytes.Repeat([]byte("0123456789"), 500)
	agent, script := play(t, opened, chunk(source[:4096], false), chunk(source[4096:], true), closed)
	got, err := agent.ReadFile(t.Context(), "/etc/rancher/k3s/k3s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, source) {
		t.Errorf("got %d bytes, want the %d of the source", len(got), len(source))
	}
	want := []string{
		`{"path":"/etc/rancher/k3s/k3s.yaml","mode":"r"}`,
		`{"handle":1001,"count":1048576}`, `{"handle":1001,"count":1048576}`, `{"handle":1001}`,
	}
	if !slices.Equal(script.arguments, want) {
		t.Errorf("arguments %q, want %q", script.arguments, want)
	}
}

func TestReadFileEmpty(t *testing.T) {
	agent, _ := play(t, opened, chunk(nil, true), closed)
	got, err := agent.ReadFile(t.Context(), "/token")
	if err != nil || len(got) != 0 {
		t.Errorf("got %q and %v, want nothing", got, err)
	}
}

func TestReadFileErrors(t *testing.T) {
	tests := map[string]struct {
		steps  []step
		target error
		text   string
	}{
		"missing": {
			steps:  []step{{command: cmdFileOpen, err: refused("failed to open file '/f' (mode: 'r'): No such file or directory")}},
			target: fs.ErrNotExist,
		},
		"not allowed in the guest": {
			steps: []step{{command: cmdFileOpen, err: refused("failed to open file '/f' (mode: 'r'): Permission denied")}},
			text:  "Permission denied",
		},
		"disabled": {
			steps:  []step{{command: cmdFileOpen, err: refused("Command guest-file-open has been disabled")}},
			target: ErrDisabled,
		},
		"the agent goes away": {
			steps:  []step{opened, {command: cmdFileRead, err: ErrNotConnected}, {command: cmdFileClose, err: ErrNotConnected}},
			target: ErrNotConnected,
		},
		"cut chunk": {
			steps: []step{opened, {command: cmdFileRead, reply: `{"return":{"count":4096,"buf-b64":"aGk=","eof":true}}`}, closed},
			text:  "2 bytes but says 4096",
		},
		"no progress":  {steps: []step{opened, chunk(nil, false), closed}, text: "nothing before the end"},
		"not base64":   {steps: []step{opened, {command: cmdFileRead, reply: `{"return":{"count":1,"buf-b64":"?","eof":true}}`}, closed}, text: "unknown form"},
		"without end":  {steps: append(append([]step{opened}, slices.Repeat([]step{chunk(make([]byte, chunkSize), false)}, 17)...), closed), text: "larger than 16 MiB"},
		"answer wrong": {steps: []step{{command: cmdFileOpen, reply: `{"return":{}}`}}, text: "unknown form"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent, _ := play(t, tt.steps...)
			got, err := agent.ReadFile(t.Context(), "/f")
			if err == nil || got != nil {
				t.Fatalf("got %d bytes and error %v", len(got), err)
			}
			if tt.target != nil {
				wantIs(t, err, tt.target)
			}
			if !strings.Contains(err.Error(), "/f") || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q does not mention the file and %q", err, tt.text)
			}
		})
	}
}

// cancelling is a Transport whose caller gives up while a file is being read or written.
type cancelling struct {
	cancel context.CancelFunc
	closed bool
}

func (c *cancelling) Command(ctx context.Context, req string, _ time.Duration) (string, error) {
	switch {
	case strings.Contains(req, cmdFileOpen):
		return `{"return":7}`, nil
	case strings.Contains(req, cmdFileRead), strings.Contains(req, cmdFileWrite):
		c.cancel()
		return "", context.Cause(ctx)
	}
	_, bounded := ctx.Deadline()
	c.closed = strings.Contains(req, cmdFileClose) && bounded && ctx.Err() == nil
	return `{"return":{}}`, nil
}

func TestReadFileClosesAfterCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	transport := &cancelling{cancel: cancel}
	_, err := New(transport).ReadFile(ctx, "/f")
	wantIs(t, err, context.Canceled)
	if !transport.closed {
		t.Error("the file was not closed with a context of its own")
	}
}

func TestWriteFile(t *testing.T) {
	written := func(n int) step {
		return step{command: cmdFileWrite, reply: fmt.Sprintf(`{"return":{"count":%d,"eof":false}}`, n)}
	}
	flushed := step{command: cmdFileFlush, reply: `{"return":{}}`}
	large := bytes.Repeat([]byte("x"), 2*chunkSize+5)
	write := func(data []byte) string {
		return fmt.Sprintf(`{"handle":1001,"buf-b64":%q}`, base64.StdEncoding.EncodeToString(data))
	}
	for name, tt := range map[string]struct {
		content []byte
		steps   []step
		want    []string
	}{
		"short":  {[]byte("tls-san: []\n"), []step{opened, written(12), flushed, closed}, []string{write([]byte("tls-san: []\n"))}},
		"binary": {[]byte{0, 0xff, '"'}, []step{opened, written(3), flushed, closed}, []string{write([]byte{0, 0xff, '"'})}},
		"empty":  {nil, []step{opened, flushed, closed}, nil},
		"long": {
			large, []step{opened, written(chunkSize), written(chunkSize), written(5), flushed, closed},
			[]string{write(large[:chunkSize]), write(large[:chunkSize]), write(large[:5])},
		},
	} {
		t.Run(name, func(t *testing.T) {
			agent, script := play(t, tt.steps...)
			if err := agent.WriteFile(t.Context(), "/etc/f", tt.content); err != nil {
				t.Fatal(err)
			}
			want := slices.Concat([]string{`{"path":"/etc/f","mode":"w"}`}, tt.want, []string{`{"handle":1001}`, `{"handle":1001}`})
			if !slices.Equal(script.arguments, want) {
				t.Errorf("the arguments are not those of the file in pieces: %.200q", script.arguments)
			}
			for _, a := range script.arguments {
				if len(a) > 4<<20 {
					t.Errorf("a request of %d bytes is too long for libvirt", len(a))
				}
			}
		})
	}
}

func TestWriteFileErrors(t *testing.T) {
	const secret = "5ec7e7"
	for name, tt := range map[string]struct {
		steps  []step
		target error
		text   string
	}{
		"no directory": {
			steps:  []step{{command: cmdFileOpen, err: refused("failed to open file '/f' (mode: 'w'): No such file or directory")}},
			target: fs.ErrNotExist,
		},
		"disabled": {
			steps:  []step{opened, {command: cmdFileWrite, err: refused("Command guest-file-write has been disabled")}, closed},
			target: ErrDisabled,
		},
		"the agent goes away": {
			steps:  []step{opened, {command: cmdFileWrite, err: ErrNotConnected}, {command: cmdFileClose, err: ErrNotConnected}},
			target: ErrNotConnected,
		},
		"a part": {
			steps: []step{opened, {command: cmdFileWrite, reply: `{"return":{"count":4,"eof":false}}`}, closed},
			text:  "of 6 bytes the guest took 4",
		},
		"full disk": {
			steps: []step{
				opened, {command: cmdFileWrite, reply: `{"return":{"count":6,"eof":false}}`},
				{command: cmdFileFlush, err: refused("failed to flush file: No space left on device")}, closed,
			},
			text: "No space left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			agent, _ := play(t, tt.steps...)
			err := agent.WriteFile(t.Context(), "/f", []byte(secret))
			if err == nil {
				t.Fatal("no error")
			}
			if tt.target != nil {
				wantIs(t, err, tt.target)
			}
			if !strings.Contains(err.Error(), "write /f: ") || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), secret) {
				t.Errorf("error %q does not mention the file and %q, or it holds the content", err, tt.text)
			}
		})
	}
}

func TestWriteFileClosesAfterCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	transport := &cancelling{cancel: cancel}
	err := New(transport).WriteFile(ctx, "/f", []byte("x"))
	wantIs(t, err, context.Canceled)
	if !transport.closed {
		t.Error("the file was not closed with a context of its own")
	}
}
