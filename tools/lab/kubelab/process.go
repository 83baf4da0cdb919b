package kubelab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const stopGrace = 10 * time.Second

// process is a running part of a control plane.
type process struct {
	name    string
	cmd     *exec.Cmd
	done    chan struct{}
	stopped bool // by SIGSTOP
}

// startProcess starts a program with its output in a log file. Its life is bound to that of the lab: the kernel
// kills it when the lab dies without having stopped it.
func startProcess(logDir, name, program string, args ...string) (*process, error) {
	logFile := filepath.Join(logDir, name+".log")
	if st, err := os.Stat(logFile); err == nil && st.Size() > 8<<20 {
		if err := os.Rename(logFile, logFile+".1"); err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, append([]string{name}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // why it ended stands in its log
	}()
	return p, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// freeze stops the process in its tracks; thaw lets it go on.
func (p *process) freeze() error {
	if !p.running() || p.stopped {
		return nil
	}
	p.stopped = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	if !p.running() || !p.stopped {
		return nil
	}
	p.stopped = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// stop ends the process, with force if it has to. A process that is gone already has nothing left to signal.
func (p *process) stop(ctx context.Context) {
	if !p.running() {
		return
	}
	_ = p.thaw()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	case <-time.After(stopGrace):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}
