package k3s

import (
	"regexp"
	"strings"
	"testing"
)

func TestNewSecret(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b {
		t.Error("two secrets are the same")
	}
	if !regexp.MustCompile(`^[A-Z2-7]{26,}$`).MatchString(a) {
		t.Error("a secret is not of 26 letters and digits, or has one of K10's digits")
	}
}

func TestParseToken(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	const secret = "abc123"
	good := "K10" + hash + "::server:" + secret
	for _, file := range []string{good, good + "\n", good + "\r\n"} {
		got, err := ParseToken([]byte(file))
		if err != nil || got != good {
			t.Errorf("ParseToken(%q) = %q, %v", file, got, err)
		}
	}
	for name, file := range map[string]string{
		"empty":            "",
		"only a newline":   "\n",
		"the short form":   secret,
		"cut in the hash":  good[:40],
		"cut before it":    "K10" + hash + "::server:",
		"an agent's":       "K10" + hash + "::node:" + secret,
		"upper-case hash":  "K10" + strings.ToUpper(hash) + "::server:" + secret,
		"two lines":        good + "\n" + good,
		"something before": "x" + good,
	} {
		got, err := ParseToken([]byte(file))
		if err == nil {
			t.Errorf("%s: accepted as %q", name, got)
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), hash[:10]) {
			t.Errorf("%s: the error holds the token: %v", name, err)
		}
	}
}
