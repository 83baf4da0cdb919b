package k3s

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guest is a directory that the bootstrap takes for its VM, with programs that note how they were called.
type guest struct {
	root string
	bin  string
}

const instance = "6f1c0a0e-1111-4222-8333-444455556666"

// sources of the programs. The file "calls" collects what they were told.
const (
	curlOK = `while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
cat >"$out" <<'END'
#!/bin/sh
echo "install VERSION=$INSTALL_K3S_VERSION EXEC=$INSTALL_K3S_EXEC SKIP_START=$INSTALL_K3S_SKIP_START umask=$(umask)" >>"$CALLS"
env | grep -e ^K3S_ -e ^VERSION= -e ^ROLE= >>"$CALLS"
exit "${INSTALL_RC:-0}"
END
echo "curl $1" >>"$CALLS"`
	curlFailsTwice = `[ -e "$CALLS.1" ] || { touch "$CALLS.1"; exit 6; }
[ -e "$CALLS.2" ] || { touch "$CALLS.2"; exit 22; }
` + curlOK
	curlPage = `while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
echo "<html>please log in</html>" >"$out"`
)

func newGuest(t *testing.T, curl string) guest {
	t.Helper()
	g := guest{root: t.TempDir(), bin: t.TempDir()}
	g.write(t, filepath.Join(g.root, "sys/fs/cgroup/cgroup.controllers"), "cpu memory\n", 0o600)
	g.write(t, filepath.Join(g.root, "proc/uptime"), "100.25 50.00\n", 0o600)
	g.write(t, filepath.Join(g.root, BootstrapPath), BootstrapScript(), 0o600)
	g.write(t, filepath.Join(g.root, PreflightPath), PreflightScript(), 0o600)
	g.env(t, Bootstrap{Role: Agent})
	g.program(t, "curl", curl)
	g.program(t, "k3s", `printf 'k3s version v1.36.2+k3s1 (469d009f)\ngo version go1.26.1\n'`)
	g.program(t, "systemctl", `echo "systemctl $*" >>"$CALLS"`)
	g.program(t, "sleep", `echo "sleep $*" >>"$CALLS"
read -r up idle <"$UPTIME"
echo "$((${up%.*} + $1)).25 $idle" >"$UPTIME"`)
	return g
}

func (g guest) write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// env writes the bootstrap's settings, with defaults for what is not given.
func (g guest) env(t *testing.T, b Bootstrap) {
	t.Helper()
	b.Instance = instance
	if b.Version == (Version{}) {
		b.Version = mustVersion(t, "v1.36.2+k3s1")
	}
	if b.InstallScriptURL == "" {
		b.InstallScriptURL = "https://get.example.test/it's here?a=$HOME&b=`id`"
	}
	g.write(t, filepath.Join(g.root, BootstrapEnvPath), string(BootstrapEnv(b)), 0o600)
}

func (g guest) program(t *testing.T, name, source string) {
	t.Helper()
	g.write(t, filepath.Join(g.bin, name), "#!/bin/sh\n"+source+"\n", 0o700)
}

// run returns the marker, what the programs were told, and the exit status.
func (g guest) run(t *testing.T, env ...string) (Marker, string, int) {
	t.Helper()
	calls := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(g.root, BootstrapPath), g.root)
	cmd.Env = append([]string{"PATH=" + g.bin + ":/usr/bin:/bin", "CALLS=" + calls, "UPTIME=" + filepath.Join(g.root, "proc/uptime")}, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("output:\n%s", out)
	raw, err := os.ReadFile(filepath.Join(g.root, MarkerPath))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseMarker(raw)
	if err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return m, string(told), cmd.ProcessState.ExitCode()
}

func TestBootstrapInstalls(t *testing.T) {
	g := newGuest(t, curlOK)
	want := Marker{Instance: instance, State: MarkerDone, Step: StepStart}
	const wantCalls = "curl https://get.example.test/it's here?a=$HOME&b=`id`\n" +
		"install VERSION=v1.36.2+k3s1 EXEC=agent SKIP_START=true umask=0022\n" +
		"systemctl daemon-reload\n" +
		"systemctl start --no-block k3s-agent\n"
	for _, run := range []string{"first", "second"} {
		m, calls, rc := g.run(t)
		if m != want || rc != 0 {
			t.Errorf("%s run: marker %+v, status %d", run, m, rc)
		}
		if calls != wantCalls {
			t.Errorf("%s run: calls\n%s\nwant\n%s", run, calls, wantCalls)
		}
	}
	log := filepath.Join(g.root, LogPath)
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the log has mode %v", info.Mode())
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []Step{StepCgroup, StepPreflight, StepDownload, StepInstall, StepVersion, StepTurn, StepStart} {
		if !strings.Contains(string(text), "step "+string(step)+"\n") {
			t.Errorf("the log does not name step %s", step)
		}
	}
}

// A node that has to wait for its turn is installed, and starts once the turn has come.
func TestBootstrapWaitsForItsTurn(t *testing.T) {
	g := newGuest(t, curlOK)
	g.env(t, Bootstrap{Role: Server, Turn: 3 * time.Second})
	g.program(t, "sleep", `cat "$MARKER" >>"$CALLS"
read -r up idle <"$UPTIME"
echo "$((${up%.*} + $1)).25 $idle" >"$UPTIME"
[ -z "$TURN" ] || touch "$TURN"`)
	marker := "MARKER=" + filepath.Join(g.root, MarkerPath)
	m, calls, rc := g.run(t, marker)
	if m.State != MarkerFailed || m.Step != StepTurn || m.RC != 124 || rc != 124 || strings.Contains(calls, "systemctl") {
		t.Errorf("without a turn: marker %+v, status %d, calls\n%s", m, rc, calls)
	}
	m, calls, _ = g.run(t, marker, "TURN="+filepath.Join(g.root, TurnPath))
	if m.State != MarkerDone || !strings.Contains(calls, `"state":"waiting","step":"turn"`) || !strings.Contains(calls, "--no-block k3s\n") {
		t.Errorf("with its turn: marker %+v, calls\n%s", m, calls)
	}
}

func TestBootstrapServer(t *testing.T) {
	g := newGuest(t, curlOK)
	g.env(t, Bootstrap{Role: Server})
	m, calls, _ := g.run(t)
	if m.State != MarkerDone || !strings.Contains(calls, " EXEC=server ") || !strings.Contains(calls, "--no-block k3s\n") {
		t.Errorf("marker %+v, calls\n%s", m, calls)
	}
}

func TestBootstrapRetries(t *testing.T) {
	g := newGuest(t, curlFailsTwice)
	g.env(t, Bootstrap{Role: Agent, Retry: time.Hour})
	m, calls, _ := g.run(t)
	if m.State != MarkerDone {
		t.Errorf("marker %+v", m)
	}
	if !strings.HasPrefix(calls, "sleep 2\nsleep 4\ncurl ") {
		t.Errorf("calls\n%s", calls)
	}
}

func TestBootstrapGivesUp(t *testing.T) {
	g := newGuest(t, "exit 6")
	g.env(t, Bootstrap{Role: Agent, Retry: 95 * time.Second})
	m, calls, _ := g.run(t)
	if want := (Marker{Instance: instance, State: MarkerFailed, Step: StepDownload, RC: 6}); m != want {
		t.Errorf("marker %+v", m)
	}
	const want = "sleep 2\nsleep 4\nsleep 8\nsleep 16\nsleep 30\nsleep 30\n"
	if calls != want {
		t.Errorf("calls\n%s\nwant\n%s", calls, want)
	}
}

// No wait brings a program that the image lacks.
func TestBootstrapWithoutCurlAndWget(t *testing.T) {
	g := newGuest(t, curlOK)
	if err := os.Remove(filepath.Join(g.bin, "curl")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mkdir", "mv", "rm"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(g.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	g.env(t, Bootstrap{Role: Agent, Retry: time.Hour})
	m, calls, _ := g.run(t, "PATH="+g.bin)
	if want := (Marker{Instance: instance, State: MarkerFailed, Step: StepDownload, RC: 127}); m != want || calls != "" {
		t.Errorf("marker %+v, calls\n%s", m, calls)
	}
	log, err := os.ReadFile(filepath.Join(g.root, LogPath))
	if err != nil || !strings.Contains(string(log), "neither curl nor wget") {
		t.Errorf("log\n%s, %v", log, err)
	}
}

// Only kubelet 1.35 and later refuse cgroup v1.
func TestBootstrapOnCgroup1(t *testing.T) {
	for version, fails := range map[string]bool{
		"v1.9.0+k3s1": false, "v1.29.15+k3s1": false, "v1.34.8+k3s1": false, "v1.35.0+k3s1": true, "v1.40.1+k3s1": true, "v1.100.0+k3s1": true, "v2.0.0+k3s1": true,
	} {
		t.Run(version, func(t *testing.T) {
			g := newGuest(t, curlOK)
			g.env(t, Bootstrap{Role: Agent, Version: mustVersion(t, version)})
			g.program(t, "k3s", "echo 'k3s version "+version+" (0)'")
			if err := os.RemoveAll(filepath.Join(g.root, "sys")); err != nil {
				t.Fatal(err)
			}
			if m, _, _ := g.run(t); (m.State == MarkerFailed && m.Step == StepCgroup) != fails {
				t.Errorf("marker %+v", m)
			}
		})
	}
}

func TestBootstrapFails(t *testing.T) {
	tests := map[string]struct {
		curl    string
		prepare func(*testing.T, guest)
		env     string
		step    Step
		rc      int
		log     string
	}{
		"download": {curl: "exit 22", step: StepDownload, rc: 22},
		"no script": {
			curl: curlPage, step: StepDownload, rc: 65,
			log: "empty or no shell script",
		},
		"empty answer": {curl: "exit 0", step: StepDownload, rc: 65, log: "empty or no shell script"},
		"install":      {curl: curlOK, env: "INSTALL_RC=3", step: StepInstall, rc: 3},
		"wrong version": {
			curl: curlOK, step: StepVersion, rc: 1,
			prepare: func(t *testing.T, g guest) { g.program(t, "k3s", `echo "k3s version v1.36.2+k3s10 (0)"`) },
			log:     "k3s v1.36.2+k3s1 was asked for, and v1.36.2+k3s10 is installed",
		},
		"damaged program": {
			curl: curlOK, step: StepVersion, rc: 126,
			prepare: func(t *testing.T, g guest) { g.program(t, "k3s", "exit 126") },
		},
		"cgroup v1": {
			curl: curlOK, step: StepCgroup, rc: 1,
			prepare: func(t *testing.T, g guest) {
				if err := os.RemoveAll(filepath.Join(g.root, "sys")); err != nil {
					t.Fatal(err)
				}
			},
			log: "cgroup v1",
		},
		"start": {
			curl: curlOK, step: StepStart, rc: 5,
			prepare: func(t *testing.T, g guest) { g.program(t, "systemctl", `[ "$1" != start ] || exit 5`) },
		},
		"killed": {
			curl: "kill -TERM $PPID", step: StepDownload, rc: 143,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, tt.curl)
			if tt.prepare != nil {
				tt.prepare(t, g)
			}
			m, calls, rc := g.run(t, tt.env)
			if want := (Marker{Instance: instance, State: MarkerFailed, Step: tt.step, RC: tt.rc}); m != want || rc != tt.rc {
				t.Errorf("marker %+v, status %d; want %+v", m, rc, want)
			}
			if strings.Contains(calls, "sleep") {
				t.Errorf("it paused without a budget for it:\n%s", calls)
			}
			log, err := os.ReadFile(filepath.Join(g.root, LogPath))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(log), tt.log) || !strings.Contains(string(log), "step "+string(tt.step)+" failed") {
				t.Errorf("log\n%s\nwant it to hold %q", log, tt.log)
			}
		})
	}
}

// What a VM lacks is told before anything is downloaded, in a marker that keeps every sign of it.
func TestBootstrapPreflight(t *testing.T) {
	g := newGuest(t, curlOK)
	g.env(t, Bootstrap{Role: Agent, Preflight: Preflight{NFS: "nas.example", ISCSI: true}})
	const lines = `the "first" trouble, with a \back\\slash and 100% é` + "\n" + `a	second \n one`
	g.write(t, filepath.Join(g.root, PreflightPath), `echo "preflight $* $PREFLIGHT_ROOT" >>"$CALLS"
cat <<'END'
`+lines+`
END
exit 1
`, 0o600)
	m, calls, rc := g.run(t)
	want := Marker{Instance: instance, State: MarkerFailed, Step: StepPreflight, RC: 1, Message: strings.ReplaceAll(lines, "\t", "")}
	if m != want || rc != 1 {
		t.Errorf("marker %+v, status %d; want %+v", m, rc, want)
	}
	if want := "preflight 6 nas.example true " + g.root + "\n"; calls != want {
		t.Errorf("calls\n%s\nwant\n%s", calls, want)
	}
	log, err := os.ReadFile(filepath.Join(g.root, LogPath))
	if err != nil || !strings.Contains(string(log), `the "first" trouble`) || !strings.Contains(string(log), "second") {
		t.Errorf("log\n%s, %v", log, err)
	}

	g.write(t, filepath.Join(g.root, PreflightPath), "exit 0\n", 0o600)
	if m, _, _ := g.run(t); m.State != MarkerDone || m.Message != "" {
		t.Errorf("with nothing amiss: marker %+v", m)
	}
}

// Nothing is checked that is not asked for, and a preflight takes no time from the downloads.
func TestBootstrapWithoutPreflight(t *testing.T) {
	g := newGuest(t, curlOK)
	g.write(t, filepath.Join(g.root, PreflightPath), "exit 1\n", 0o600)
	if m, _, _ := g.run(t); m.State != MarkerDone {
		t.Errorf("marker %+v", m)
	}
	g = newGuest(t, curlFailsTwice)
	g.env(t, Bootstrap{Role: Agent, Retry: 10 * time.Second, Preflight: Preflight{ISCSI: true}})
	g.write(t, filepath.Join(g.root, PreflightPath), "sleep 60\n", 0o600)
	if m, calls, _ := g.run(t); m.State != MarkerDone || !strings.HasPrefix(calls, "sleep 60\nsleep 2\nsleep 4\ncurl ") {
		t.Errorf("marker %+v, calls\n%s", m, calls)
	}
}

func TestBootstrapEnv(t *testing.T) {
	got := string(BootstrapEnv(Bootstrap{
		Instance: instance, Role: Server, Version: mustVersion(t, "v1.36.2+k3s1"),
		InstallScriptURL: "https://get.example.test/?q='; reboot; '", Retry: DefaultRetry, Preflight: Preflight{NFS: "[2001:db8::5]", ISCSI: true},
	}))
	const want = `INSTANCE='6f1c0a0e-1111-4222-8333-444455556666'
ROLE='server'
UNIT='k3s'
VERSION='v1.36.2+k3s1'
INSTALL_SCRIPT_URL='https://get.example.test/?q='\''; reboot; '\'''
RETRY_SECONDS='180'
TURN_SECONDS='0'
NFS_SERVER='2001:db8::5'
NFS_TRIES='6'
ISCSI='true'
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBootstrapScriptPaths(t *testing.T) {
	for _, path := range []string{BootstrapEnvPath, LogPath} {
		if !strings.Contains(BootstrapScript(), "$root"+path) {
			t.Errorf("the script does not name %s", path)
		}
	}
	if filepath.Dir(PreflightPath) != filepath.Dir(MarkerPath) {
		t.Errorf("the script does not look for %s", PreflightPath)
	}
}

func TestShellcheck(t *testing.T) {
	path, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("shellcheck is not installed")
	}
	if out, err := exec.CommandContext(t.Context(), path, "--shell=sh", "bootstrap.sh", "preflight.sh").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestParseMarker(t *testing.T) {
	got, err := ParseMarker([]byte(`{"instance":"i-1","state":"failed","step":"download","rc":22}` + "\n"))
	if want := (Marker{Instance: "i-1", State: MarkerFailed, Step: StepDownload, RC: 22}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, file := range []string{
		"", "{", `{"instance":"i-1","state":"failed","st`, "[]", "null", `{"instance":"i-1","state":"paused","step":"x","rc":0}`,
		`{"state":"done","step":"start","rc":0}`, `{"instance":"i-1","state":"failed","step":"download","rc":"22"}`,
	} {
		if m, err := ParseMarker([]byte(file)); err == nil {
			t.Errorf("%q: accepted as %+v", file, m)
		}
	}
}

func FuzzParseMarker(f *testing.F) {
	f.Add([]byte(`{"instance":"i-1","state":"failed","step":"download","rc":22}`))
	f.Add([]byte(`{"instance":"i-1"`))
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := ParseMarker(file)
		if err != nil && m != (Marker{}) {
			t.Errorf("a marker beside an error: %+v", m)
		}
		if err == nil && (m.Instance == "" || m.State == "") {
			t.Errorf("accepted: %+v", m)
		}
	})
}
