package guestagent

import (
	"context"
	"fmt"
	"io/fs"
	"time"
)

const (
	// chunkSize is how much of a file is asked for at once: in base64 it stays well below the 4 MiB that libvirt's
	// protocol carries in a string, and below the 10 MiB answer that breaks the agent's channel.
	chunkSize = 1 << 20
	// maxFileSize keeps a file that has no end from filling the memory.
	maxFileSize = 16 << 20
	// closeTimeout bounds the closing of a file, which is tried even after the caller's context has ended.
	closeTimeout = 10 * time.Second
)

// fileChunk is the answer to guest-file-read.
type fileChunk struct {
	Count int    `json:"count"`
	Data  []byte `json:"buf-b64"`
	EOF   bool   `json:"eof"`
}

// ReadFile returns a whole file of at most 16 MiB. A missing one is fs.ErrNotExist.
func (a *Agent) ReadFile(ctx context.Context, path string) (_ []byte, err error) {
	defer func() {
		if err != nil {
			err = &fs.PathError{Op: "read", Path: path, Err: err}
		}
	}()
	var handle int64
	open := struct {
		Path string `json:"path"`
		Mode string `json:"mode"`
	}{path, "r"}
	if err := a.command(ctx, cmdFileOpen, open, &handle); err != nil {
		return nil, err
	}
	defer a.closeFile(ctx, handle)

	read := struct {
		Handle int64 `json:"handle"`
		Count  int   `json:"count"`
	}{handle, chunkSize}
	var content []byte
	for {
		var chunk fileChunk
		if err := a.command(ctx, cmdFileRead, read, &chunk); err != nil {
			return nil, err
		}
		switch {
		case len(chunk.Data) != chunk.Count:
			return nil, fmt.Errorf("%s: the answer holds %d bytes but says %d", cmdFileRead, len(chunk.Data), chunk.Count)
		case chunk.Count == 0 && !chunk.EOF:
			return nil, fmt.Errorf("%s: the answer holds nothing before the end of the file", cmdFileRead)
		case len(content)+chunk.Count > maxFileSize:
			return nil, fmt.Errorf("the file is larger than %d MiB", maxFileSize>>20)
		}
		content = append(content, chunk.Data...)
		if chunk.EOF {
			return content, nil
		}
	}
}

// closeFile gives a handle back, which the agent keeps until its own end otherwise. Whether the guest still answers
// does not alter what was read from it, so that there is no error to return.
func (a *Agent) closeFile(ctx context.Context, handle int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = a.command(ctx, cmdFileClose, struct {
		Handle int64 `json:"handle"`
	}{handle}, nil)
}
