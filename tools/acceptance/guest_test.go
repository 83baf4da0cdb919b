package acceptance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// guestCat reads a file in a guest.
func guestCat(t testing.TB, l *lab.Lab, node, path string) string {
	t.Helper()
	return guestRun(t, l, node, "/bin/cat", path)
}

// guestRun runs a program in a guest with virsh and its guest agent, without a line of the provider's code, and returns
// what it printed.
func guestRun(t testing.TB, l *lab.Lab, node, program string, args ...string) string {
	t.Helper()
	request, err := json.Marshal(map[string]any{
		"execute": "guest-exec", "arguments": map[string]any{"path": program, "arg": args, "capture-output": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var started struct {
		Return struct{ PID int }
	}
	agent(t, l, node, string(request), &started)
	for range 60 {
		var status struct {
			Return struct {
				Exited   bool
				ExitCode int    `json:"exitcode"`
				Out      string `json:"out-data"`
			}
		}
		agent(t, l, node, fmt.Sprintf(`{"execute":"guest-exec-status","arguments":{"pid":%d}}`, started.Return.PID), &status)
		if status.Return.Exited {
			out, err := base64.StdEncoding.DecodeString(status.Return.Out)
			if err != nil || status.Return.ExitCode != 0 {
				t.Fatalf("%s: %s %q: exit code %d, %v\n%s", node, program, args, status.Return.ExitCode, err, out)
			}
			return string(out)
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("%s: %s %q does not end", node, program, args)
	return ""
}

func agent(t testing.TB, l *lab.Lab, node, command string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(virsh(t, l, firstHV, "qemu-agent-command", node, command)), into); err != nil {
		t.Fatal(err)
	}
}

// joinSecret is the part of a cluster's token that must not leak.
func joinSecret(t testing.TB, l *lab.Lab, cluster string) string {
	t.Helper()
	_, secret, ok := strings.Cut(strings.TrimSpace(guestCat(t, l, cluster+"-cp-1", "/var/lib/rancher/k3s/server/node-token")), "::server:")
	if !ok || len(secret) < 16 {
		t.Fatal("the server's token has another form than expected")
	}
	return secret
}
