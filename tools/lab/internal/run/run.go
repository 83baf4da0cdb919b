// Package run starts the programs that the lab is made with and turns their failures into errors that can be read.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long a program may take to clean up after it was asked to stop.
const stopGrace = 15 * time.Second

// tail is how much of a failed program's output goes into its error.
const tail = 2 << 10

// Command is exec.CommandContext for a program that has children of its own: when ctx ends the whole process group is
// asked to stop, and killed when it does not.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}
	cmd.WaitDelay = stopGrace
	return cmd
}

// Do runs cmd to its end. The error of a failed run carries the last lines that the program wrote.
func Do(cmd *exec.Cmd) error {
	var out bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &out
	}
	return explain(cmd, cmd.Run(), out.Bytes())
}

// Output runs cmd to its end and returns its standard output without surrounding space.
func Output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := explain(cmd, cmd.Run(), errs.Bytes())
	return strings.TrimSpace(out.String()), err
}

func explain(cmd *exec.Cmd, err error, output []byte) error {
	if err == nil {
		return nil
	}
	text := bytes.TrimSpace(output)
	if len(text) > tail {
		text = append([]byte("…"), text[len(text)-tail:]...)
	}
	if len(text) == 0 {
		return fmt.Errorf("%s: %w", cmd.Args[0], err)
	}
	return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, text)
}
