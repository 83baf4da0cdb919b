package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "lock")
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ended, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a second holder: got error %v", err)
	}
	unlock()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file is left behind: %v", err)
	}
	unlock, err = Lock(t.Context(), path)
	if err != nil {
		t.Fatalf("after it was released: %v", err)
	}
	unlock()
}

// Who opened the file before its holder removed it must not think that it holds the lock.
func TestLockOnRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !same(f, path) {
		t.Error("the file is not taken for the one at its path")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if same(f, path) {
		t.Error("a removed file is taken for the lock")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if same(f, path) {
		t.Error("the predecessor of a file is taken for it")
	}
}
