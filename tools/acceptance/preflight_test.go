package acceptance

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// The cluster of TestAccNFSPreflight.
const (
	nas       = "nas"
	nasServer = nas + "-cp-1"
)

// An NFS server that this machine reaches and the guests do not, and a guest without the programs to mount it: the first node says
// so before anything of k3s is in it. Once both are mended the same apply converges.
func TestAccNFSPreflight(t *testing.T) {
	t.Parallel()
	l := around(t)
	withNFS(t, l)
	server := anotherWay(t)
	nfs := attributes{
		"server": quote(server), "path": quote(lab.NFSPath), "nfs_version": quote("4.1"), "mount_options": `["hard"]`,
		"chart": fmt.Sprintf("{ archive = %q }", archive(t, "csi-driver-nfs")),
	}
	s := newSubject(t, l, config{
		name: nas, kubeconfig: true,
		more:          attributes{"csi": fmt.Sprintf("{\nnfs = {\n%s}\n}", nfs)},
		moreOfServers: attributes{"extra_user_data": quote("#cloud-config\nbootcmd:\n  - [rm, -f, /usr/sbin/mount.nfs]\n")},
	})
	s.steps(t, []step{
		{"refused", func(t *testing.T) {
			open := refuseGuests(t, server)
			s.refused(nasServer, "the NFS server "+server+" cannot be reached at TCP port 2049", "mount.nfs is missing", "nfs-common")
			open()
			s.bare(t, nasServer)
		}},
		{"made", func(t *testing.T) {
			s.want.moreOfServers = nil
			s.apply()
			s.connect()
			if got, err := readyNodes([]byte(s.c.state()[kubeconfigAddr].Raw)); err != nil || !slices.Equal(got, []string{nasServer}) {
				t.Fatalf("the Ready nodes are %v, %v", got, err)
			}
			s.installed(t, "nfs")
			s.mountable(t, s.classes(t, "nfs")["nfs"], server, nasServer)
			s.c.steady()
		}},
	})
}

// bare makes sure that nothing of k3s is in a guest.
func (s *subject) bare(t *testing.T, node string) {
	t.Helper()
	guestRun(t, s.l, node, "/bin/sh", "-c",
		`for f in /usr/local/bin/k3s /etc/systemd/system/k3s.service /var/lib/rancher/k3s; do if [ -e "$f" ]; then echo "$f is there"; exit 1; fi; done`)
}

// nfsPort is the port of NFS servers.
const nfsPort = "2049"

// anotherWay makes another address of the LAN lead to the lab's NFS server, so that what a test does to that way harms no other.
func anotherWay(t *testing.T) (server string) {
	t.Helper()
	at, err := netip.ParseAddr(nfsServer())
	if err != nil {
		t.Fatal(err)
	}
	parts := at.As4()
	parts[3] = 9 // The lab gives no address below 11 to anything but itself and the server.
	server = netip.AddrFrom4(parts).String()
	command(t, "ip", "address", "add", server+"/32", "dev", "lan0")
	t.Cleanup(func() { command(t, "ip", "address", "delete", server+"/32", "dev", "lan0") })
	listener, err := net.Listen("tcp", net.JoinHostPort(server, nfsPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(client, new(net.Dialer), net.JoinHostPort(nfsServer(), nfsPort))
		}
	}()
	return server
}

// refuseGuests has the LAN's own address refuse connections of guests to an NFS server. What this process dials goes another way. The
// function that it returns ends that.
func refuseGuests(t *testing.T, server string) (end func()) {
	t.Helper()
	rule := func(do string) {
		command(t, "iptables", "--wait", do, "INPUT", "--in-interface", "lan0", "--destination", server, "--protocol", "tcp", "--dport", nfsPort,
			"--jump", "REJECT", "--reject-with", "tcp-reset")
	}
	rule("--append")
	end = sync.OnceFunc(func() { rule("--delete") })
	t.Cleanup(end)
	return end
}

// command runs a program of this machine.
func command(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}
