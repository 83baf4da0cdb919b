package kubelab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// host is a directory tree in which the install script runs, with stubs for what it would do to the real host.
type host struct {
	t            *testing.T
	server       *server
	dir, systemd string
	bin          string
}

func newHost(t *testing.T) *host {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	s, _ := newMirror(t, doubleOf(t, "#!/bin/sh\nexit 0\n"))
	dir := t.TempDir()
	h := &host{t: t, server: s, dir: dir, systemd: filepath.Join(dir, "systemd"), bin: filepath.Join(dir, "bin")}
	for _, d := range []string{h.systemd, h.bin, filepath.Join(dir, "stubs")} {
		if err := os.Mkdir(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"systemctl": `echo "$@" >>` + dir + `/calls`, "chown": "true", "sudo": `exec "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "stubs", name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// install runs the script as `curl … | ENV sh -s - ARGS` does.
func (h *host) install(env []string, args ...string) (string, error) {
	h.t.Helper()
	script, err := h.server.mirror.script(h.server.base)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), "sh", append([]string{"-s", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(string(script))
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(h.dir, "stubs") + ":/usr/bin:/bin", "HOME=" + h.dir,
		"INSTALL_K3S_BIN_DIR=" + h.bin, "INSTALL_K3S_SYSTEMD_DIR=" + h.systemd,
	}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *host) read(elem ...string) string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{h.dir}, elem...)...))
	if err != nil {
		return ""
	}
	return string(b)
}

const version = "INSTALL_K3S_VERSION=v1.36.1+k3s1"

func TestInstallServer(t *testing.T) {
	h := newHost(t)
	out, err := h.install([]string{version, "K3S_TOKEN=p 'q'", "HTTP_PROXY=", "CONTAINERD_X=1", "OTHER=2", "INSTALL_K3S_EXEC=--disable traefik"}, "--node-label", "it's=a b")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	unit := h.read("systemd", "k3s.service")
	for _, want := range []string{
		"Type=notify", "KillMode=process", "Delegate=yes", "Restart=always", "RestartSec=5s", "TimeoutStartSec=0",
		"EnvironmentFile=-/etc/default/%N", "EnvironmentFile=-/etc/sysconfig/%N", "EnvironmentFile=-" + h.systemd + "/k3s.service.env",
		"ExecStart=" + h.bin + "/k3s \\\n    server \\\n\t'--disable' \\\n\t'traefik' \\\n\t'--node-label' \\\n\t'it\\'s=a b' \\\n",
	} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q:\n%s", want, unit)
		}
	}
	env := h.read("systemd", "k3s.service.env")
	if !strings.Contains(env, "K3S_TOKEN=") || !strings.Contains(env, "CONTAINERD_X=") || strings.Contains(env, "OTHER") || strings.Contains(env, "INSTALL_") {
		t.Errorf("environment file:\n%s", env)
	}
	if st, err := os.Stat(filepath.Join(h.systemd, "k3s.service.env")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("environment file: %v, %v", st.Mode(), err)
	}
	for _, link := range []string{"crictl", "ctr"} {
		if target, err := os.Readlink(filepath.Join(h.bin, link)); err == nil && target != "k3s" {
			t.Errorf("%s points to %s", link, target)
		}
	}
	for _, script := range []string{"k3s-killall.sh", "k3s-uninstall.sh"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", filepath.Join(h.bin, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	if !strings.HasSuffix(h.read("calls"), "daemon-reload\nrestart k3s\n") {
		t.Errorf("systemctl calls:\n%s", h.read("calls"))
	}
}

func TestInstallTwice(t *testing.T) {
	h := newHost(t)
	restarts := func() int { return strings.Count(h.read("calls"), "restart") }
	for _, c := range []struct {
		env      []string
		says     string
		restarts int
	}{
		{nil, "systemd: Starting k3s", 1},
		{nil, "No change detected so skipping service start", 1},
		{[]string{"INSTALL_K3S_FORCE_RESTART=true"}, "systemd: Starting k3s", 2},
		{[]string{"K3S_DEBUG=true"}, "systemd: Starting k3s", 3},
	} {
		out, err := h.install(append([]string{version}, c.env...))
		if err != nil || !strings.Contains(out, c.says) || restarts() != c.restarts {
			t.Errorf("%v: %v, %d restarts, want %d and %q:\n%s", c.env, err, restarts(), c.restarts, c.says, out)
		}
	}
	if out, _ := h.install([]string{version}); !strings.Contains(out, "installed k3s matches hash") {
		t.Errorf("downloaded again:\n%s", out)
	}
}

func TestInstallVariants(t *testing.T) {
	for name, c := range map[string]struct {
		env, args []string
		unit      string
		says      string
		calls     string
	}{
		"agent by URL":       {env: []string{"K3S_URL=https://cp:6443", "K3S_TOKEN=x"}, unit: "k3s-agent", says: "systemd: Starting k3s-agent", calls: "restart k3s-agent"},
		"agent by command":   {env: []string{"K3S_TOKEN=x"}, args: []string{"agent", "--server", "https://cp:6443"}, unit: "k3s-agent", calls: "restart k3s-agent"},
		"server joins":       {env: []string{"K3S_URL=https://cp:6443", "K3S_TOKEN=x"}, args: []string{"server"}, unit: "k3s", calls: "restart k3s"},
		"name":               {env: []string{"INSTALL_K3S_NAME=blue"}, unit: "k3s-blue", calls: "restart k3s-blue"},
		"not started":        {env: []string{"INSTALL_K3S_SKIP_START=true"}, unit: "k3s", calls: "daemon-reload"},
		"not enabled":        {env: []string{"INSTALL_K3S_SKIP_ENABLE=true"}, unit: "k3s", calls: "disable k3s"},
		"type":               {env: []string{"INSTALL_K3S_TYPE=exec"}, unit: "k3s", calls: "restart k3s"},
		"channel":            {env: []string{"INSTALL_K3S_VERSION=", "INSTALL_K3S_CHANNEL=v1.34"}, unit: "k3s", says: "Using v1.34.8+k3s1 as release", calls: "restart k3s"},
		"channel by default": {env: []string{"INSTALL_K3S_VERSION="}, unit: "k3s", says: "Using v1.35.5+k3s1 as release", calls: "restart k3s"},
		"no links":           {env: []string{"INSTALL_K3S_SYMLINK=skip"}, unit: "k3s", calls: "restart k3s"},
		"token from a file":  {env: []string{"K3S_URL=https://cp:6443", "K3S_TOKEN_FILE=/t"}, unit: "k3s-agent", calls: "restart k3s-agent"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			out, err := h.install(append([]string{version}, c.env...), c.args...)
			if err != nil || !strings.Contains(out, c.says) {
				t.Errorf("%v, want %q:\n%s", err, c.says, out)
			}
			if h.read("systemd", c.unit+".service") == "" {
				t.Errorf("no unit %s", c.unit)
			}
			if got := strings.TrimSpace(h.read("calls")); !strings.HasSuffix(got, c.calls) {
				t.Errorf("systemctl calls end with %q, want %q", got, c.calls)
			}
		})
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		env    []string
		faults wire.Faults
		says   string
	}{
		"URL without token": {env: []string{"K3S_URL=https://cp:6443"}, says: "K3S_TOKEN or K3S_TOKEN_FILE is not defined"},
		"URL without TLS":   {env: []string{"K3S_URL=http://cp:6443", "K3S_TOKEN=x"}, says: "Only https:// URLs are supported for K3S_URL"},
		"unknown version":   {env: []string{"INSTALL_K3S_VERSION=v1.36.9+k3s1"}, says: "Download failed"},
		"failing mirror":    {faults: wire.Faults{DownloadStatus: 503}, says: "Download failed"},
		"corrupt download":  {faults: wire.Faults{CorruptDownload: true}, says: "Download sha256 does not match"},
		"failing channel":   {env: []string{"INSTALL_K3S_VERSION="}, faults: wire.Faults{ReleasesStatus: 500}, says: "Failed to find a release for channel stable"},
		"no binary to keep": {env: []string{"INSTALL_K3S_SKIP_DOWNLOAD=true"}, says: "Executable k3s binary not found"},
		"bad name":          {env: []string{"INSTALL_K3S_NAME=a/b"}, says: "Invalid characters for system name"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.server.setFaults(c.faults)
			out, err := h.install(append([]string{version}, c.env...))
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("got %v, want an error that says %q:\n%s", err, c.says, out)
			}
			if h.read("systemd", "k3s.service") != "" || h.read("systemd", "k3s-agent.service") != "" {
				t.Error("a unit was written all the same")
			}
		})
	}
}
