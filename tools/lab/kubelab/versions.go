package kubelab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// offered are the k3s releases of the lab's mirror by minor version, newest first: the general releases from v1.31.0
// to v1.36.1 (tags of the k3s repository; there is no v1.34.0).
var offered = []struct {
	minor  int
	newest int
	// extra are re-releases, by patch.
	extra map[int]int
	first int
}{
	{minor: 36, newest: 1},
	{minor: 35, newest: 5, extra: map[int]int{0: 3}},
	{minor: 34, newest: 8, extra: map[int]int{3: 3}, first: 1},
	{minor: 33, newest: 12, extra: map[int]int{7: 3}},
	{minor: 32, newest: 13, extra: map[int]int{11: 3}},
	{minor: 31, newest: 14},
}

// Versions lists the tags that the mirror offers while it serves the double, newest first.
func Versions() []string {
	var tags []string
	for _, m := range offered {
		for patch := m.newest; patch >= m.first; patch-- {
			if n, ok := m.extra[patch]; ok {
				tags = append(tags, fmt.Sprintf("v1.%d.%d+k3s%d", m.minor, patch, n))
			}
			tags = append(tags, fmt.Sprintf("v1.%d.%d+k3s1", m.minor, patch))
		}
	}
	return tags
}

// commitOf invents the short commit that a release's --version prints.
func commitOf(tag string) string {
	sum := sha256.Sum256([]byte(tag))
	return hex.EncodeToString(sum[:4])
}

// publishedAt invents a release's date: a day per release back from May 2026, so that the order is that of the list.
func publishedAt(position int) time.Time {
	return time.Date(2026, time.May, 20, 12, 0, 0, 0, time.UTC).AddDate(0, 0, -position)
}

// minorOf returns v1.36 for v1.36.1+k3s1.
func minorOf(tag string) string {
	parts := strings.SplitN(tag, ".", 3)
	if len(parts) < 3 {
		return tag
	}
	return parts[0] + "." + parts[1]
}
