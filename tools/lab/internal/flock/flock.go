// Package flock makes processes take turns by a lock on a file, which the kernel releases when its holder ends.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// poll is how often a waiting process looks whether the lock is free.
const poll = 300 * time.Millisecond

// Lock waits for the exclusive lock on path, which it creates with its directory, until ctx ends. unlock removes the file.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		f, err := try(path)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if f != nil {
			// Removed before it is released: who waited for it finds that it holds a file that is no longer the lock.
			return func() { os.Remove(path); f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process that holds %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}

// try returns the locked file, or none when somebody else holds the lock.
func try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && same(f, path) {
		return f, nil
	}
	f.Close()
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return nil, err
}

func same(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	want, err := os.Stat(path)
	return err == nil && os.SameFile(have, want)
}
