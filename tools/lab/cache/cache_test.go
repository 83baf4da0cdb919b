package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

func TestFileBuildsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bin", "tool-0123456789abcdef")
	var builds atomic.Int32
	build := func(_ context.Context, work, out string) error {
		builds.Add(1)
		if filepath.Dir(out) != work {
			t.Errorf("out %s is not in the working directory %s", out, work)
		}
		return os.WriteFile(out, []byte("whole"), 0o755)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := File(t.Context(), path, build); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "whole" {
		t.Errorf("entry is %q, %v", got, err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFileAfterFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	broken := errors.New("broken")
	err := File(t.Context(), path, func(_ context.Context, _, out string) error {
		if err := os.WriteFile(out, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got error %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed build is an entry: %v", err)
	}
	// As after a kill: the working directory is still there.
	if err := os.MkdirAll(filepath.Join(path+".partial", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = File(t.Context(), path, func(_ context.Context, work, out string) error {
		if entries, err := os.ReadDir(work); err != nil || len(entries) > 0 {
			t.Errorf("the working directory is not empty: %v, %v", entries, err)
		}
		return os.WriteFile(out, nil, 0o600)
	})
	if err != nil {
		t.Errorf("the next build: %v", err)
	}
}

func TestKeyKeepsPartsApart(t *testing.T) {
	if Key("ab", "c") == Key("a", "bc") {
		t.Error("parts run into each other")
	}
	if first, again := Key("a"), Key("a"); first != again {
		t.Error("not the same twice")
	}
}

func TestTree(t *testing.T) {
	base := fstest.MapFS{"a.go": {Data: []byte("1")}, "b/c.go": {Data: []byte("2")}, "a_test.go": {Data: []byte("3")}}
	keep := func(path string) bool { return path != "a_test.go" }
	hash := func(fsys fstest.MapFS) string {
		t.Helper()
		h, err := Tree(fsys, keep)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	want := hash(base)
	tests := []struct {
		name string
		fsys fstest.MapFS
		same bool
	}{
		{"left-out file changed", fstest.MapFS{"a.go": base["a.go"], "b/c.go": base["b/c.go"], "a_test.go": {Data: []byte("x")}}, true},
		{"content changed", fstest.MapFS{"a.go": {Data: []byte("x")}, "b/c.go": base["b/c.go"]}, false},
		{"file moved", fstest.MapFS{"a.go": base["a.go"], "b/d.go": base["b/c.go"]}, false},
		{"file gone", fstest.MapFS{"a.go": base["a.go"]}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if (hash(tt.fsys) == want) != tt.same {
				t.Errorf("same hash: %v, want %v", !tt.same, tt.same)
			}
		})
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	since := time.Now().Add(-time.Hour)
	old := since.Add(-time.Hour)
	for name, used := range map[string]time.Time{
		"lab-0123456789abcdef":         old,
		"debian-0123456789abcdef.tar":  old,
		"lab-fedcba9876543210":         time.Now(),
		"golangci-lint":                old,
		"lab-0123456789abcdef.partial": old,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	// A hit counts as use.
	hit := filepath.Join(dir, "hit-0123456789abcdef")
	if err := os.WriteFile(hit, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(hit, old, old); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), hit, nil); err != nil {
		t.Fatal(err)
	}
	if err := Prune(dir, since); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"lab-0123456789abcdef": false, "debian-0123456789abcdef.tar": false,
		"lab-fedcba9876543210": true, "golangci-lint": true, "hit-0123456789abcdef": true,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s kept: %v, want %v", name, err == nil, want)
		}
	}
	if err := Prune(filepath.Join(dir, "none"), since); err != nil {
		t.Errorf("a cache that is not there yet: %v", err)
	}
}
