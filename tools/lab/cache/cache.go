// Package cache keeps what takes long to make (the golden image, the control plane's binary) outside the checkout, each
// under a name that carries the hash of what it was made from. An entry is there whole or not at all.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/flock"
)

// Env names the environment variable that moves the cache.
const Env = "COCKPIT_LAB_CACHE"

// Dir is the directory of the cache: $COCKPIT_LAB_CACHE, else cockpit-lab in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the lab's cache (set %s): %w", Env, err)
	}
	return filepath.Join(base, "cockpit-lab"), nil
}

// Key hashes parts, each with its length, to a short name.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Tree hashes the names and contents of all regular files below root for which keep says true. The order of the
// directory does not matter; an empty tree has a hash too.
func Tree(root fs.FS, keep func(path string) bool) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !keep(path) {
			return err
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		content := sha256.New()
		if _, err := io.Copy(content, f); err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s%x", len(path), path, content.Sum(nil))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hashing the lab's inputs: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// File returns at once when path exists. Otherwise it calls build, which has a directory of its own to work in and leaves
// the finished file at out, and moves that file to path in one step. Of several callers, in this process or in others,
// one builds and the rest wait for it.
func File(ctx context.Context, path string, build func(ctx context.Context, work, out string) error) error {
	if used(path) {
		return nil
	}
	unlock, err := flock.Lock(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if used(path) {
		return nil
	}
	// A builder that was killed leaves its directory; the lock says that nobody uses it any more.
	work := path + ".partial"
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("clearing the lab's cache: %w", err)
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return fmt.Errorf("making the lab's cache: %w", err)
	}
	defer os.RemoveAll(work)
	out := filepath.Join(work, "out")
	if err := build(ctx, work, out); err != nil {
		return err
	}
	if err := os.Rename(out, path); err != nil {
		return fmt.Errorf("keeping %s: %w", filepath.Base(path), err)
	}
	return nil
}

// used says whether path is there and notes that it was needed.
func used(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // without it an entry is only forgotten too early
	return true
}

// entryForm is the end of an entry's name: a Key and perhaps a suffix.
var entryForm = regexp.MustCompile(`-[0-9a-f]{16}(\.[a-z0-9]+)?$`)

// Prune removes the entries of dir that nobody needed since then: most are made from sources that have changed. What is not
// named like an entry stays.
func Prune(dir string, since time.Time) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pruning the lab's cache: %w", err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || !entryForm.MatchString(f.Name()) || info.ModTime().After(since) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pruning the lab's cache: %w", err)
		}
	}
	return nil
}
