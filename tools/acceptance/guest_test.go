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

// guestCat reads a file in a guest with virsh and its guest agent, without a line of the provider's code.
func guestCat(t testing.TB, l *lab.Lab, node, path string) string {
	t.Helper()
	var started struct {
		Return struct{ PID int }
	}
	agent(t, l, node, fmt.Sprintf(`{"execute":"guest-exec","arguments":{"path":"/bin/cat","arg":[%q],"capture-output":true}}`, path), &started)
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
				t.Fatalf("%s: cat %s: exit code %d, %v", node, path, status.Return.ExitCode, err)
			}
			return string(out)
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("%s: cat %s does not end", node, path)
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
