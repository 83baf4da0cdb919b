package k3s

import (
	_ "embed" // for the bootstrap script
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

//go:embed bootstrap.sh
var bootstrapScript string

// BootstrapScript is the POSIX shell script that installs k3s in a guest and starts it, the text of BootstrapPath.
func BootstrapScript() string { return bootstrapScript }

// DefaultRetry is how long the bootstrap begins new attempts to download: name resolution and routes of a VM may need a
// while after its first boot, and so may a mirror that restarts.
const DefaultRetry = 3 * time.Minute

// Bootstrap is what the script is told.
type Bootstrap struct {
	// Instance is the UUID of the VM; the marker repeats it.
	Instance string
	Role     Role
	Version  Version
	// InstallScriptURL is where the k3s install script is got, normally https://get.k3s.io.
	InstallScriptURL string
	// Retry bounds the time in which downloads are attempted anew, in whole seconds; 0 means one attempt. What an
	// attempt itself may last comes on top: one minute for the script, 15 for the installation.
	Retry time.Duration
	// Turn bounds the wait for TurnPath, in whole seconds, after k3s was installed and before its unit starts; 0 means that
	// nothing is waited for. ConfigPath may be written until then.
	Turn time.Duration
	// Preflight is checked before anything is downloaded.
	Preflight Preflight
}

// BootstrapEnv is the text of BootstrapEnvPath, which the script sources. It holds no secret.
func BootstrapEnv(b Bootstrap) []byte {
	var out strings.Builder
	for _, v := range [][2]string{
		{"INSTANCE", b.Instance},
		{"ROLE", string(b.Role)},
		{"UNIT", b.Role.Unit()},
		{"VERSION", b.Version.String()},
		{"INSTALL_SCRIPT_URL", b.InstallScriptURL},
		{"RETRY_SECONDS", fmt.Sprint(int(b.Retry.Seconds()))},
		{"TURN_SECONDS", fmt.Sprint(int(b.Turn.Seconds()))},
		{"NFS_SERVER", b.Preflight.nfs()},
		{"NFS_TRIES", fmt.Sprint(bootTries)},
		{"ISCSI", b.Preflight.iscsi()},
	} {
		fmt.Fprintf(&out, "%s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	return []byte(out.String())
}

// MarkerState is how the bootstrap stands.
type MarkerState string

// The states of the bootstrap.
const (
	MarkerRunning MarkerState = "running"
	// MarkerWaiting: k3s is installed, and TurnPath is waited for.
	MarkerWaiting MarkerState = "waiting"
	// MarkerDone: k3s is installed and its unit was told to start; whether it comes up is another matter.
	MarkerDone   MarkerState = "done"
	MarkerFailed MarkerState = "failed"
)

// Step is a part of the bootstrap.
type Step string

// The steps of the bootstrap, in their order.
const (
	// StepCgroup checks that the image boots with cgroup v2, where the version of k3s needs it.
	StepCgroup Step = "cgroup"
	// StepPreflight checks what the storage of the cluster needs. Its status is 1 where something is amiss, which the message
	// tells.
	StepPreflight Step = "preflight"
	// StepDownload gets the install script. Its status is that of curl or wget, 65 for a text that is no script, or 127
	// where the image has neither program.
	StepDownload Step = "download"
	// StepInstall runs the install script, which downloads k3s. Its status is the script's, or 124 after 15 minutes.
	StepInstall Step = "install"
	// StepVersion checks that the version asked for is installed.
	StepVersion Step = "version"
	// StepTurn waits for the node's turn. Its status is 124 when that did not come.
	StepTurn Step = "turn"
	// StepStart orders the start of the unit.
	StepStart Step = "start"
)

// Marker tells how far the bootstrap of a VM has come.
type Marker struct {
	// Instance is the UUID of the VM that the bootstrap was made for.
	Instance string      `json:"instance"`
	State    MarkerState `json:"state"`
	// Step is the one that runs, the one that failed, or the last.
	Step Step `json:"step"`
	// RC is the exit status of a step that failed.
	RC int `json:"rc"`
	// Message is what a step that failed has to say for people, one or more lines, "" where it says nothing.
	Message string `json:"message,omitempty"`
}

// ParseMarker reads the file MarkerPath.
func ParseMarker(file []byte) (Marker, error) {
	var m Marker
	if err := json.Unmarshal(file, &m); err != nil {
		return Marker{}, fmt.Errorf("the bootstrap marker is not JSON: %w", err)
	}
	switch m.State {
	case MarkerRunning, MarkerWaiting, MarkerDone, MarkerFailed:
	default:
		return Marker{}, fmt.Errorf("the bootstrap marker has the unknown state %q", m.State)
	}
	if m.Instance == "" {
		return Marker{}, errors.New("the bootstrap marker names no VM")
	}
	return m, nil
}
