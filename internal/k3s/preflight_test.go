package k3s

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// node is a VM that a preflight looks at: it has these programs and no other.
type node struct{ guest }

// tools are programs that every distribution has.
var tools = []string{"bash", "cat", "curl", "getent", "grep", "sed", "sh", "timeout"}

// newNode makes a node where nothing is amiss.
func newNode(t *testing.T) node {
	t.Helper()
	n := node{guest{root: t.TempDir(), bin: t.TempDir()}}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(n.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"awk", "blkid", "findmnt", "lsblk", "iscsiadm"} {
		n.program(t, name, "exit 99")
	}
	n.write(t, filepath.Join(n.root, "sbin/mount.nfs"), "#!/bin/sh\n", 0o700)
	n.program(t, "modprobe", `echo "modprobe $*" >>"$CALLS"`)
	n.program(t, "sleep", `echo "sleep $*" >>"$CALLS"`)
	n.systemd(t, "iscsid.socket")
	return n
}

// systemd makes a systemctl to which these units are active, and which fails at all but asking for them.
func (n node) systemd(t *testing.T, active ...string) {
	t.Helper()
	n.program(t, "systemctl", `echo "systemctl $*" >>"$CALLS"
[ "$1" = is-active ] || exit 1
case " `+strings.Join(active, " ")+` " in *" $3 "*) exit 0 ;; *) exit 3 ;; esac`)
}

func (n node) without(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if err := errors.Join(os.RemoveAll(filepath.Join(n.bin, name)), os.RemoveAll(filepath.Join(n.root, "sbin", name))); err != nil {
			t.Fatal(err)
		}
	}
}

// check runs the preflight as the guest agent does, and returns the lines that it writes and what the programs were told.
func (n node) check(t *testing.T, shell string, p Preflight) (lines []string, calls string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	program, args := p.Command()
	if program != "/bin/sh" {
		t.Fatalf("the program is %s", program)
	}
	cmd := exec.CommandContext(t.Context(), shell, args...)
	cmd.Env = []string{"PATH=" + n.bin, "PREFLIGHT_ROOT=" + n.root, "CALLS=" + log}
	out, err := cmd.CombinedOutput() // as the agent gives it
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, out)
	}
	if (err == nil) != (len(out) == 0) {
		t.Errorf("%v, and it wrote %q", err, out)
	}
	if len(out) > 0 {
		lines = strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	told, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return lines, string(told)
}

// shells are those that are /bin/sh somewhere.
func shells(t *testing.T) []string {
	t.Helper()
	found := []string{"/bin/sh"}
	for _, name := range []string{"dash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// localAddress is an address of this machine that nobody else uses.
func localAddress() string {
	return net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(250)), byte(2+rand.IntN(250))).String()
}

// nfsServer listens where an NFS server does.
func nfsServer(t *testing.T) string {
	t.Helper()
	address := localAddress()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "2049"))
	if err != nil {
		t.Skipf("no listener can be had at the port of NFS: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return address
}

func TestPreflightWithoutTrouble(t *testing.T) {
	server := nfsServer(t)
	for _, shell := range shells(t) {
		n := newNode(t)
		lines, calls := n.check(t, shell, Preflight{NFS: server, ISCSI: true})
		const want = "modprobe -q nfs\nsystemctl is-active --quiet iscsid.socket\nmodprobe -q iscsi_tcp\nsystemctl is-active --quiet multipathd.service\n"
		if len(lines) > 0 || calls != want {
			t.Errorf("%s: %q, calls\n%s\nwant\n%s", shell, lines, calls, want)
		}
		if lines, calls := n.check(t, shell, Preflight{}); len(lines) > 0 || calls != "" {
			t.Errorf("%s, asked for nothing: %q, calls\n%s", shell, lines, calls)
		}
	}
}

// A module that is there is not loaded, and the agent of a distribution with SELinux might not be let do it.
func TestPreflightLeavesModules(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"nfs", "iscsi_tcp"} {
		if err := os.MkdirAll(filepath.Join(n.root, "sys/module", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if lines, calls := n.check(t, "/bin/sh", Preflight{NFS: nfsServer(t), ISCSI: true}); len(lines) > 0 || strings.Contains(calls, "modprobe") {
		t.Errorf("%q, calls\n%s", lines, calls)
	}
}

func TestPreflightNFS(t *testing.T) {
	server := nfsServer(t)
	const once = "modprobe -q nfs\n"
	const again = once + "sleep 2\n"
	for name, tt := range map[string]struct {
		server  string
		prepare func(*testing.T, node)
		want    []string // a part of each line
		calls   string
	}{
		"no helper": {
			prepare: func(t *testing.T, n node) { n.without(t, "mount.nfs") },
			want:    []string{"mount.nfs is missing, which mounts NFS volumes: install nfs-common (Debian, Ubuntu), nfs-utils (RHEL family)"},
			calls:   once,
		},
		"no module": {
			prepare: func(t *testing.T, n node) { n.program(t, "modprobe", "echo FATAL >&2; exit 1") },
			want:    []string{"no module nfs"},
		},
		"refused": {
			server: localAddress(), calls: again,
			want: []string{"cannot be reached at TCP port 2049: it refuses the connection"},
		},
		"refused at first": {
			prepare: func(t *testing.T, n node) {
				n.without(t, "bash")
				n.program(t, "bash", `[ ! -e "$CALLS.up" ] || exit 0
touch "$CALLS.up"
echo "bash: connect: Connection refused" >&2
exit 1`)
				n.program(t, "touch", `: >"$1"`)
			},
			calls: again,
		},
		"unknown name": {
			server: "nas.invalid", calls: again,
			prepare: func(t *testing.T, n node) { n.without(t, "getent"); n.program(t, "getent", "exit 2") },
			want:    []string{"the NFS server nas.invalid cannot be reached at TCP port 2049: its name is not known here"},
		},
		"no name server": {
			server: "nas.invalid", calls: again,
			prepare: func(t *testing.T, n node) { n.without(t, "getent"); n.program(t, "getent", "exit 124") },
			want:    []string{"no name server answers"},
		},
		"silent": {
			calls: again,
			prepare: func(t *testing.T, n node) {
				n.without(t, "timeout")
				n.program(t, "timeout", `shift; case $1 in bash) exit 124 ;; esac; exec "$@"`)
			},
			want: []string{"it does not answer; a firewall"},
		},
		"no route": {
			calls: again,
			prepare: func(t *testing.T, n node) {
				n.without(t, "bash")
				n.program(t, "bash", `printf 'bash: connect: No route to host\nbash: line 1: /dev/tcp/x/2049: No route to host\n' >&2; exit 1`)
			},
			want: []string{"this VM has no route to it"},
		},
		"something else": {
			calls: again,
			prepare: func(t *testing.T, n node) {
				n.without(t, "bash")
				n.program(t, "bash", `printf 'bash: socket: Permission denied\nbash: line 1: /dev/tcp/x/2049: Permission denied\n' >&2; exit 1`)
			},
			want: []string{"TCP port 2049: Permission denied"},
		},
		"no bash": {
			calls:   again,
			prepare: func(t *testing.T, n node) { n.without(t, "bash") },
			want:    []string{"bash is missing"},
		},
		"two troubles": {
			server: localAddress(), calls: again,
			prepare: func(t *testing.T, n node) { n.without(t, "mount.nfs") },
			want:    []string{"mount.nfs is missing", "refuses"},
		},
	} {
		for _, shell := range shells(t) {
			t.Run(name+" "+filepath.Base(shell), func(t *testing.T) {
				n := newNode(t)
				if tt.prepare != nil {
					tt.prepare(t, n)
				}
				p := Preflight{NFS: server}
				if tt.server != "" {
					p.NFS = tt.server
				}
				lines, calls := n.check(t, shell, p)
				wantLines(t, lines, tt.want)
				if calls != tt.calls {
					t.Errorf("calls\n%s\nwant\n%s", calls, tt.calls)
				}
			})
		}
	}
}

// A server is more than a word of the shell.
func TestPreflightQuotes(t *testing.T) {
	n := newNode(t)
	const name = `$(touch "$CALLS") 'x"; * \n é`
	lines, calls := n.check(t, "/bin/sh", Preflight{NFS: name})
	wantLines(t, lines, []string{"the NFS server " + name + " cannot be reached"})
	if strings.Contains(calls, "touch") {
		t.Errorf("calls\n%s", calls)
	}
}

// multipathConfig is a part of what multipathd tells of itself, with more of a blacklist.
func multipathConfig(more string) string {
	return `cat <<'END'
defaults {
	find_multipaths "strict"
}
blacklist {
` + more + `	devnode "!^(sd[a-z]|dasd[a-z]|nvme[0-9])"
	device {
		vendor "SGI"
		product "Universal Xport"
	}
}
blacklist_exceptions {
	devnode "^sdb"
	property "(SCSI_IDENT_|ID_WWN)"
}
devices {
	device {
		vendor "IET"
		product "^(MDSMSD3|MD3)"
	}
}
END`
}

func TestPreflightISCSI(t *testing.T) {
	blacklist := func(more string) func(*testing.T, node) {
		return func(t *testing.T, n node) {
			n.systemd(t, "iscsid.service", "multipathd.service")
			n.program(t, "multipathd", multipathConfig(more))
		}
	}
	const takes = "multipathd runs and would take Longhorn's disks: disable it"
	for name, tt := range map[string]struct {
		prepare func(*testing.T, node)
		want    []string // a part of each line
	}{
		"no iscsiadm": {
			func(t *testing.T, n node) { n.without(t, "iscsiadm") },
			[]string{"iscsiadm is missing, which attaches Longhorn's volumes: install open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (RHEL family)"},
		},
		"no module": {
			func(t *testing.T, n node) { n.program(t, "modprobe", "echo FATAL >&2; exit 1") },
			[]string{"no module iscsi_tcp"},
		},
		"programs": {
			func(t *testing.T, n node) { n.without(t, "findmnt", "lsblk") },
			[]string{"which Longhorn runs: findmnt lsblk; install util-linux"},
		},
		"iscsid runs": {func(t *testing.T, n node) { n.systemd(t, "iscsid.service") }, nil},
		"iscsid is started": {
			func(t *testing.T, n node) {
				n.program(t, "systemctl", `[ "$1" != is-active ] || exit 3; [ "$*" = "enable --now iscsid.socket" ]`)
			}, nil,
		},
		"iscsid is started without a socket": {
			func(t *testing.T, n node) {
				n.program(t, "systemctl", `[ "$1" != is-active ] || exit 3; [ "$*" = "enable --now iscsid.service" ]`)
			}, nil,
		},
		"iscsid is masked": {
			func(t *testing.T, n node) { n.program(t, "systemctl", "echo failed; echo masked >&2; exit 1") },
			[]string{"iscsid does not run and cannot be started"},
		},
		"multipathd as it comes":               {blacklist(""), []string{takes}},
		"multipathd for other disks":           {blacklist("\tdevnode \"^(vd|sda|sd[c-z])\"\n"), []string{takes}},
		"multipathd for no disk":               {blacklist("\tdevnode \"^sd[a-z0-9]+\"\n"), nil},
		"multipathd for nothing":               {blacklist("\tdevnode \".*\"\n"), nil},
		"multipathd for nothing but others":    {blacklist("\tdevnode \"!^dasd\"\n"), nil},
		"multipathd, not for Longhorn":         {blacklist("\tdevice {\n\t\tvendor \"IET\"\n\t\tproduct \"VIRTUAL-DISK\"\n\t}\n"), nil},
		"multipathd that cannot be asked":      {func(t *testing.T, n node) { n.systemd(t, "iscsid.service", "multipathd.service") }, []string{takes}},
		"multipathd with a pattern of PCRE":    {blacklist("\tdevnode \"^(?!x\"\n"), []string{takes}},
		"multipathd with a space in a devnode": {blacklist("\tdevnode \"^sd|^x y\"\n"), nil},
	} {
		for _, shell := range shells(t) {
			t.Run(name+" "+filepath.Base(shell), func(t *testing.T) {
				n := newNode(t)
				tt.prepare(t, n)
				lines, _ := n.check(t, shell, Preflight{ISCSI: true})
				wantLines(t, lines, tt.want)
			})
		}
	}
}

func wantLines(t *testing.T, lines, want []string) {
	t.Helper()
	if !slices.EqualFunc(lines, want, strings.Contains) {
		t.Errorf("it wrote\n%s\nwant lines with\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
