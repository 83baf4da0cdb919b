package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 4 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0"
	tests := []struct {
		name, text string
		want       stat
		wantErr    bool
	}{
		{name: "plain", text: "42 (sleep) S" + rest, want: stat{'S', 1, 4711}},
		{name: "name with spaces and parentheses", text: "42 (a) Z (b c) R" + rest, want: stat{'R', 1, 4711}},
		{name: "zombie", text: "42 (sleep) Z" + rest, want: stat{'Z', 1, 4711}},
		{name: "cut short", text: "42 (sleep) S 1 4 4", wantErr: true},
		{name: "no name", text: "42 sleep S" + rest, wantErr: true},
		{name: "no number", text: "42 (sleep) S x 4 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711", wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(tt.text)
			if (err != nil) != tt.wantErr {
				t.Fatalf("error %v, wanted one: %v", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// sleeper starts a process that runs until the test ends.
func sleeper(t *testing.T) Process {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStop(t *testing.T) {
	p := sleeper(t)
	if !p.Alive() {
		t.Fatal("a running process is not alive")
	}
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	// Its parent, this test, has not waited for it: it is a zombie.
	if p.Alive() {
		t.Error("alive after Stop")
	}
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

// A process that inherited the id of one of ours is left alone.
func TestStopSparesAnotherProcessWithTheID(t *testing.T) {
	p := sleeper(t)
	former := Process{PID: p.PID, Start: p.Start - 1}
	if former.Alive() {
		t.Error("the former process is taken for alive")
	}
	if err := former.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("the process that has the id now was stopped")
	}
}

func TestInNetwork(t *testing.T) {
	p := sleeper(t)
	got, err := InNetwork("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got, p) {
		t.Error("a process in the same network namespace was not found")
	}
	for _, own := range []int{os.Getpid(), os.Getppid()} {
		if slices.ContainsFunc(got, func(p Process) bool { return p.PID == own }) {
			t.Errorf("process %d, this one or its parent, is listed", own)
		}
	}
	if got, err := InNetwork("/run/netns/there-is-none"); err != nil || len(got) > 0 {
		t.Errorf("a namespace that does not exist: %v, %v", got, err)
	}
}
