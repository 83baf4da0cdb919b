package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/proc"
)

// stateVersion is raised when an older lab could not be understood any more.
const stateVersion = 1

// State is what a lab remembers of itself in its state file. It is written before anything it names is made.
type State struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	// BootID is the machine's boot in which the lab was started; after another one all its processes are gone.
	BootID      string       `json:"bootId"`
	Hypervisors []Hypervisor `json:"hypervisors"`
	// VirtType is what the lab's VMs run on, qemu or kvm.
	VirtType string `json:"virtType"`
	// Template is the golden image's volume in pool TemplatesPool of the first hypervisor, BrokenTemplate the one whose
	// guest agent is masked ("" without one).
	Template       string `json:"template"`
	BrokenTemplate string `json:"brokenTemplate,omitempty"`
	// MirrorURL serves the install script and the releases of k3s.
	MirrorURL string `json:"mirrorUrl"`
	// Artifacts is the directory of real k3s releases that the mirror serves; "" means that it serves the double.
	Artifacts string `json:"artifacts,omitempty"`
	// NFS says that the LAN has a file server.
	NFS bool `json:"nfs,omitempty"`
	// Processes are the lab's own daemons in the order of their start. Those that they start in turn (QEMU, control
	// planes) are found by their network namespace.
	Processes []Daemon `json:"processes"`
	// Ready is set once everything stands.
	Ready bool `json:"ready"`
}

// Hypervisor is one of the lab's libvirtd daemons.
type Hypervisor struct {
	Name string `json:"name"`
	// URI reaches it from anywhere on this machine.
	URI      string `json:"uri"`
	HostUUID string `json:"hostUuid"`
	// Address is the hypervisor's own on the LAN.
	Address netip.Addr `json:"address"`
	// Netns is the name of its network namespace.
	Netns string `json:"netns"`
}

// Daemon is a process of the lab that works in the background.
type Daemon struct {
	Name string `json:"name"`
	proc.Process
}

func readState(l layout) (State, error) {
	text, err := os.ReadFile(l.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, fmt.Errorf("lab %q: %w", l.name, errNoLab)
	}
	if err != nil {
		return State{}, fmt.Errorf("reading the state of lab %q: %w", l.name, err)
	}
	return decodeState(l, text)
}

func decodeState(l layout, text []byte) (State, error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the state of lab %q: %w", l.name, err)
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("lab %q was made by another version of this tool (state version %d, not %d): take it down and up again",
			l.name, s.Version, stateVersion)
	}
	return s, nil
}

// write replaces the state file in one step.
func (s State) write() error {
	l := layout{s.Name}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the state of lab %q: %w", s.Name, err)
	}
	if err := os.MkdirAll(l.dataDir(), 0o755); err != nil {
		return fmt.Errorf("writing the state of lab %q: %w", s.Name, err)
	}
	next := l.stateFile() + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the state of lab %q: %w", s.Name, err)
	}
	if err := os.Rename(next, l.stateFile()); err != nil {
		return fmt.Errorf("writing the state of lab %q: %w", s.Name, err)
	}
	return nil
}

// daemon finds a daemon that was started in this boot.
func (s State) daemon(name string) (Daemon, bool) {
	i := slices.IndexFunc(s.Processes, func(d Daemon) bool { return d.Name == name })
	if i < 0 {
		return Daemon{}, false
	}
	return s.Processes[i], true
}

// names lists the labs that have a directory, whatever their condition.
func names() ([]string, error) {
	var found []string
	for _, root := range []string{dataRoot, runRoot} {
		entries, err := os.ReadDir(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking for labs: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && checkName(e.Name()) == nil {
				found = append(found, filepath.Base(e.Name()))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
