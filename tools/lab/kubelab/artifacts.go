package kubelab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tagForm is a k3s tag.
var tagForm = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)(?:-rc(\d+))?\+k3s(\d+)$`)

// artifactMirror offers the real releases of a directory: DIR/install.sh, and DIR/<tag>/<asset> with the names of the
// release's assets (k3s, k3s-airgap-images-amd64.tar.zst, …). A missing checksum file is made up from what is there.
type artifactMirror struct{ dir string }

// script is the real one with the mirror's URL before it; a variable that the caller has set wins. Install scripts
// that are older than INSTALL_K3S_ARTIFACT_URL know GITHUB_URL.
func (m artifactMirror) script(base string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(m.dir, "install.sh"))
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`#!/bin/sh
export INSTALL_K3S_ARTIFACT_URL="${INSTALL_K3S_ARTIFACT_URL:-%[1]s/releases/download}"
export INSTALL_K3S_CHANNEL_URL="${INSTALL_K3S_CHANNEL_URL:-%[1]s/v1-release/channels}"
`, base)
	return append([]byte(head), b...), nil
}

func (m artifactMirror) tags() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, e := range entries {
		tag := strings.ReplaceAll(e.Name(), "%2B", "+")
		if e.IsDir() && tagForm.MatchString(tag) {
			tags = append(tags, tag)
		}
	}
	slices.SortFunc(tags, func(a, b string) int { return compareTags(b, a) })
	return tags, nil
}

func (m artifactMirror) asset(_, tag, name string) ([]byte, error) {
	if !tagForm.MatchString(tag) || !filepath.IsLocal(name) {
		return nil, os.ErrNotExist
	}
	dir := filepath.Join(m.dir, tag)
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join(m.dir, strings.ReplaceAll(tag, "+", "%2B"))
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if isNotExist(err) && name == binarySums {
		return sums(dir)
	}
	return b, err
}

// sums makes a checksum file of a release's directory.
func sums(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		out = fmt.Appendf(out, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
	}
	return out, nil
}

// compareTags orders two k3s tags; a release candidate comes before its release.
func compareTags(a, b string) int {
	x, y := tagForm.FindStringSubmatch(a), tagForm.FindStringSubmatch(b)
	for i := 1; i < len(x) && i < len(y); i++ {
		if d := tagNumber(x[i]) - tagNumber(y[i]); d != 0 {
			return d
		}
	}
	return 0
}

func tagNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 1 << 30 // no rc number: the release itself
	}
	return n
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
