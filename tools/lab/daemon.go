package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/proc"
)

// start runs a program in the background that outlives this process, with its output in the lab's log directory. argv must
// become the daemon itself by exec, not fork it.
func (l layout) start(name string, argv ...string) (Daemon, error) {
	path := l.logFile(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Daemon{}, fmt.Errorf("starting %s: %w", name, err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Daemon{}, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Daemon{}, fmt.Errorf("starting %s: %w", name, err)
	}
	// The daemon stays behind when we end. Should it end first, it must not stay a zombie.
	go func() { _ = cmd.Wait() }()
	p, err := proc.Of(cmd.Process.Pid)
	if err != nil {
		return Daemon{}, fmt.Errorf("starting %s: %w%s", name, err, l.logTail(name))
	}
	return Daemon{Name: name, Process: p}, nil
}

// logTail returns the last lines of a daemon's log, ready to stand at the end of an error.
func (l layout) logTail(name string) string {
	const lines = 10
	text, err := os.ReadFile(l.logFile(name))
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return fmt.Sprintf("\nThe end of its log:\n  %s", strings.Join(all, "\n  "))
}
