package provider

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// form validates a text by a function whose error tells how the text should look.
type form struct {
	// thing is what the text is, and rule how it looks.
	thing, rule string
	check       func(string) error
	// secret keeps the value out of the error.
	secret bool
}

var _ validator.String = form{}

// Description returns the rule.
func (f form) Description(context.Context) string { return f.rule }

// MarkdownDescription returns the rule.
func (f form) MarkdownDescription(context.Context) string { return f.rule }

// ValidateString checks a value that is known.
func (f form) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	value := req.ConfigValue.ValueString()
	err := f.check(value)
	if err == nil {
		return
	}
	if f.secret {
		value = ""
	}
	task{"use", f.thing, value}.failAt(&resp.Diagnostics, req.Path, err)
}

// oneOf is the form of an attribute that takes a few words.
func oneOf(attribute string, words ...string) form {
	rule := strings.Join(words, " or ")
	return form{thing: attribute, rule: rule, check: func(s string) error {
		if !slices.Contains(words, s) {
			return errors.New("it has to be " + rule)
		}
		return nil
	}}
}

// hypervisorName is a name that can stand in messages and in the state unquoted.
var hypervisorName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func hypervisorNameForm() form {
	const rule = "letters, digits, dots, dashes and underscores, with a letter or digit at both ends, 63 characters at most"
	return form{thing: "hypervisor name", rule: rule, check: func(s string) error {
		if !hypervisorName.MatchString(s) {
			return errors.New("it has to be of " + rule)
		}
		return nil
	}}
}

var httpURL = regexp.MustCompile(`^https?://[^\s/]+`)

func httpForm() form {
	return form{thing: "URL", rule: "an http or https URL", secret: true, check: func(s string) error {
		if !httpURL.MatchString(s) {
			return errors.New("it has to begin with https:// or http:// and a host")
		}
		return nil
	}}
}

// shortestTimeout is below what any operation takes.
const shortestTimeout = time.Minute

func timeoutForm() form {
	return form{thing: "timeout", rule: `a length of time such as "90m" or "1h30m"`, check: func(s string) error {
		switch d, err := time.ParseDuration(s); {
		case err != nil:
			return errors.New(`it is no length of time, such as "90m" or "1h30m"`)
		case d < shortestTimeout:
			return errors.New(`it is shorter than a minute, "1m", and nothing comes to its end in that time`)
		}
		return nil
	}}
}

func versionForm() form {
	return form{thing: "k3s version", rule: "a k3s release tag, vX.Y.Z+k3sN", check: func(s string) error {
		_, err := k3s.ParseVersion(s)
		return err
	}}
}

// Node names are <cluster>-<pool>-<n>. They are host names and label values, which hold 63 characters, of which three
// are left for n.
const (
	maxClusterName = 40
	maxPoolName    = 18
	maxNodeCount   = 500
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func nameForm(thing string, longest int, reserved ...string) form {
	rule := fmt.Sprintf("lower-case letters, digits and dashes, with a letter or digit at both ends, %d characters at most", longest)
	return form{thing: thing + " name", rule: rule, check: func(s string) error {
		for _, r := range reserved {
			if s == r {
				return fmt.Errorf("%q is the name of the control plane's own pool; choose another", r)
			}
		}
		switch {
		case len(s) > longest:
			return fmt.Errorf("it has %d characters and becomes a part of node names, which leaves room for %d", len(s), longest)
		case !label.MatchString(s):
			return errors.New("it becomes a part of host names: " + rule)
		}
		return nil
	}}
}

func clusterNameForm() form { return nameForm(theCluster, maxClusterName) }

func poolNameForm() form { return nameForm(thePool, maxPoolName, record.ServerPool) }

func clusterIDForm() form {
	return form{thing: "cluster id", rule: "the id of a cluster, a UUID", check: func(s string) error {
		if _, err := uuid.Parse(s); err != nil || len(s) != 36 {
			return errors.New("it is the id of a cluster, a UUID: cluster_id = cockpit_k3s_cluster.<name>.id")
		}
		return nil
	}}
}

// publicKey is a line of an authorized_keys file (sshd(8)): options may stand before the type of the key, a comment
// behind it.
var publicKey = regexp.MustCompile(`^(\S.*\s)?(ssh-(rsa|dss|ed25519)|ecdsa-sha2-nistp\d+|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) +[A-Za-z0-9+/]{32,}={0,3}(\s.*)?$`)

func publicKeyForm() form {
	return form{thing: "SSH key", rule: "a line of an authorized_keys file", secret: true, check: func(s string) error {
		s = strings.TrimRight(s, "\r\n")
		switch {
		case strings.Contains(s, "PRIVATE KEY"):
			return errors.New("it is a private key; give the public one, the file whose name ends in .pub")
		case strings.ContainsAny(s, "\r\n"):
			return errors.New("it holds several lines; give each key as an element of its own")
		case !publicKey.MatchString(s):
			return errors.New(`it is no line of an authorized_keys file, such as "ssh-ed25519 AAAA… me@host"`)
		}
		return nil
	}}
}

func minorForm() form {
	return form{thing: "k3s minor version", rule: "a minor version, X.Y", check: func(s string) error {
		_, err := k3s.ParseMinor(s)
		return err
	}}
}
