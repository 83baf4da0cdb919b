// Package proc knows processes by more than their id, so that none is ever ended because it inherited the id of another
// one that is long gone.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poll is how often an ended process is looked for.
const poll = 50 * time.Millisecond

// Process is one process of this boot of the machine: its id and, in clock ticks since boot, its start.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Of identifies the process that has the id now.
func Of(pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: s.start}, nil
}

// Alive says whether the process still runs; one that ended and waits for its parent does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	s, err := readStat(p.PID)
	return err == nil && s.start == p.Start && s.state != 'Z' && s.state != 'X'
}

// Stop asks the process to end and, after grace, ends it. A process that is gone is no error.
func (p Process) Stop(ctx context.Context, grace time.Duration) error {
	if !p.Alive() {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stopping process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	// From here on the descriptor, not the id, says who is meant; it may have been opened on a successor.
	if !p.Alive() {
		return nil
	}
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, 10 * time.Second}} {
		if err := unix.PidfdSendSignal(fd, step.signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stopping process %d: %w", p.PID, err)
		}
		if p.wait(ctx, step.wait) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopping process %d: %w", p.PID, err)
		}
	}
	return fmt.Errorf("process %d does not end, even when killed", p.PID)
}

func (p Process) wait(ctx context.Context, limit time.Duration) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return !p.Alive()
		case <-tick.C:
		}
	}
	return true
}

// InNetwork lists the processes that live in the network namespace at path (for example /run/netns/NAME), without this
// process and its ancestors. A namespace that does not exist has none.
func InNetwork(path string) ([]Process, error) {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading network namespace %s: %w", path, err)
	}
	ancestors := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !ancestors[pid]; {
		ancestors[pid] = true
		s, err := readStat(pid)
		if err != nil {
			break
		}
		pid = s.parent
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, link := range links {
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil || ancestors[pid] {
			continue
		}
		// The start is read first: a successor with the same id would not match it when it is to be stopped.
		p, err := Of(pid)
		if err != nil {
			continue
		}
		var have unix.Stat_t
		if unix.Stat(link, &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino && p.Alive() {
			found = append(found, p)
		}
	}
	return found, nil
}

// BootID names this boot of the machine. Processes of another boot are all gone.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

type stat struct {
	state  byte
	parent int
	start  uint64
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	s, err := parseStat(string(text))
	if err != nil {
		return stat{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return s, nil
}

// parseStat reads the fields state (3), ppid (4) and starttime (22) of proc_pid_stat(5). The second field, the program's
// name in parentheses, may itself hold spaces and parentheses.
func parseStat(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errors.New("malformed stat")
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errors.New("malformed stat")
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return stat{}, fmt.Errorf("malformed stat: %w", err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("malformed stat: %w", err)
	}
	return stat{state: fields[0][0], parent: parent, start: start}, nil
}
