package guestagent

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

const (
	// chunkSize is how much of a file is read or written at once: in base64 it stays well below the 4 MiB that libvirt's
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
	handle, err := a.openFile(ctx, path, "r")
	if err != nil {
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

// WriteFile puts content in the place of a file's. It is not atomic: where it fails, the file may hold a part. A missing
// directory is fs.ErrNotExist.
//
// A file that is there keeps its mode. One that is new would be open to every user of the guest: the agent gives it mode
// 0666 whatever its umask (safe_open_or_create in QEMU's qga/commands-posix.c). Make such a file with its mode first.
func (a *Agent) WriteFile(ctx context.Context, path string, content []byte) (err error) {
	defer func() {
		if err != nil {
			err = &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}()
	handle, err := a.openFile(ctx, path, "w")
	if err != nil {
		return err
	}
	defer a.closeFile(ctx, handle)

	for chunk := range slices.Chunk(content, chunkSize) {
		write := struct {
			Handle int64  `json:"handle"`
			Data   []byte `json:"buf-b64"`
		}{handle, chunk}
		var written struct {
			Count int `json:"count"`
		}
		if err := a.command(ctx, cmdFileWrite, write, &written); err != nil {
			return err
		}
		if written.Count != len(chunk) {
			return fmt.Errorf("%s: of %d bytes the guest took %d", cmdFileWrite, len(chunk), written.Count)
		}
	}
	// The agent buffers what it writes; a full disk may show only here.
	return a.command(ctx, cmdFileFlush, fileHandle{handle}, nil)
}

// fileHandle is the argument of commands that need no more than an open file.
type fileHandle struct {
	Handle int64 `json:"handle"`
}

// openFile opens a file in one of fopen's modes.
func (a *Agent) openFile(ctx context.Context, path, mode string) (handle int64, err error) {
	open := struct {
		Path string `json:"path"`
		Mode string `json:"mode"`
	}{path, mode}
	err = a.command(ctx, cmdFileOpen, open, &handle)
	return handle, err
}

// closeFile gives a handle back, which the agent keeps until its own end otherwise. Whether the guest still answers
// does not alter what was read from it or flushed to it, so that there is no error to return.
func (a *Agent) closeFile(ctx context.Context, handle int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = a.command(ctx, cmdFileClose, fileHandle{handle}, nil)
}
