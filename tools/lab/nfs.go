package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/cache"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// The lab's file server: where it is in the LAN, what it exports, and the storage pool by which the hypervisors know it. The
// pool is defined and never started: no kernel of a hypervisor need be able to mount it.
const (
	NFSPool = "nfs-ds"
	NFSPath = "/export"

	nfsPort = "2049"
	// nfsPoolPath is where a hypervisor would mount the pool.
	nfsPoolPath = "/var/lib/libvirt/nfs-ds"
	nfsDaemon   = "nfs"
	nfsStart    = time.Minute
)

// nfsAddress is the server's own address, below those of the hypervisors.
var nfsAddress = netip.MustParseAddr("10.77.0.2")

// nfsPackages have NFS-Ganesha, a file server that needs nothing of the kernel but handles of files.
var nfsPackages = []string{"nfs-ganesha", "nfs-ganesha-vfs"}

// nfsArchive makes the file server's part of the cache: a tar of the programs and libraries of its packages. They are unpacked
// and not installed, since installed they would start a file server of the machine's own.
func nfsArchive(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("fetching the file server: %w", err)
	}
	path := filepath.Join(dir, "nfs-ganesha-"+cache.Key(strings.Join(nfsPackages, " "), string(release))+".tar")
	err = cache.File(ctx, path, func(ctx context.Context, work, out string) error {
		log("downloading packages")
		script := `mkdir -p archives/partial root
apt-get --quiet update
# The packages themselves, also where they are installed, and of the others those that are not.
apt-get --quiet --yes --no-install-recommends -o Dir::Cache::archives="$PWD/archives" --download-only install "$@"
(cd archives && apt-get --quiet download "$@")
for package in archives/*.deb; do dpkg-deb --extract "$package" root; done
tar --create --file "$OUT" --directory root usr/bin usr/lib
`
		cmd := run.Command(ctx, "sh", append([]string{"-eu", "-c", script, "sh"}, nfsPackages...)...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "OUT="+out)
		return run.Do(cmd)
	})
	if err != nil {
		return "", fmt.Errorf("fetching the file server: %w", err)
	}
	return path, nil
}

func (l layout) nfsDir(elem ...string) string {
	return filepath.Join(append([]string{l.dataDir(), "nfs"}, elem...)...)
}

// ExportDir is the exported directory on this machine.
func (l *Lab) ExportDir() string { return l.nfsDir("export") }

// startNFS gives the file server its address and starts it.
func (l layout) startNFS(ctx context.Context, p Parts) (Daemon, error) {
	root := l.nfsDir("root")
	for _, dir := range []string{root, l.nfsDir("export"), l.nfsDir("recovery")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Daemon{}, fmt.Errorf("setting up the file server: %w", err)
		}
	}
	// Provisioners of volumes come as nobody in particular.
	if err := os.Chmod(l.nfsDir("export"), 0o777); err != nil {
		return Daemon{}, fmt.Errorf("setting up the file server: %w", err)
	}
	if err := run.Do(run.Command(ctx, "tar", "--extract", "--file", p.NFS, "--directory", root)); err != nil {
		return Daemon{}, fmt.Errorf("setting up the file server: %w", err)
	}
	conf := l.nfsDir("ganesha.conf")
	if err := os.WriteFile(conf, []byte(ganeshaConf(l)), 0o644); err != nil {
		return Daemon{}, fmt.Errorf("setting up the file server: %w", err)
	}
	if err := ipScript(ctx, l.lanNetns(), fmt.Sprintf("address add %s/32 dev %s\n", nfsAddress, lanBridge)); err != nil {
		return Daemon{}, err
	}
	libraries := filepath.Join(root, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(root, "usr/lib/ganesha")
	return l.start(nfsDaemon,
		"ip", "netns", "exec", l.lanNetns(), "env", "LD_LIBRARY_PATH="+libraries, filepath.Join(root, "usr/bin/ganesha.nfsd"),
		"-F", "-f", conf, "-p", l.nfsDir("pid"), "-L", "STDOUT")
}

// ganeshaConf serves one directory by NFSv4, to everybody and without grace: no client has state from before. NFSv3 would need
// a port mapper.
func ganeshaConf(l layout) string {
	return fmt.Sprintf(`NFS_CORE_PARAM {
  Protocols = 4;
  Bind_addr = %[1]s;
  NFS_Port = %[2]s;
  Enable_NLM = false;
  Enable_RQUOTA = false;
  Enable_UDP = false;
  Plugins_Dir = "%[3]s";
}
NFSv4 {
  RecoveryRoot = "%[4]s";
  Graceless = true;
  Only_Numeric_Owners = true;
  UseGetpwnam = true;
}
NFS_KRB5 { Active_krb5 = false; }
EXPORT {
  Export_Id = 1;
  Path = "%[5]s";
  Pseudo = "%[6]s";
  Access_Type = RW;
  Squash = No_Root_Squash;
  SecType = sys;
  Protocols = 4;
  Transports = TCP;
  FSAL { Name = VFS; }
}
LOG { Default_Log_Level = EVENT; }
`, nfsAddress, nfsPort, l.nfsDir("root/usr/lib/x86_64-linux-gnu/ganesha"), l.nfsDir("recovery"), l.nfsDir("export"), NFSPath)
}

// nfsPoolXML defines the export as a storage pool.
func nfsPoolXML() string {
	return fmt.Sprintf(`<pool type='netfs'>
  <name>%s</name>
  <source><host name='%s'/><dir path='%s'/><format type='nfs'/></source>
  <target><path>%s</path></target>
</pool>
`, NFSPool, nfsAddress, NFSPath, nfsPoolPath)
}

// awaitNFS waits until the file server listens.
func (l layout) awaitNFS(ctx context.Context, s State) error {
	d, ok := s.daemon(nfsDaemon)
	if !ok {
		return errors.New("the lab's file server was not started")
	}
	ctx, cancel := context.WithTimeout(ctx, nfsStart)
	defer cancel()
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	lab := &Lab{State: s, layout: l}
	for {
		out, err := run.Output(lab.Command(ctx, "ss", "--no-header", "--listening", "--tcp", "--numeric", "sport", "=", ":"+nfsPort))
		if err == nil && out != "" {
			return nil
		}
		if !d.Alive() {
			return fmt.Errorf("the lab's file server ended%s", l.logTail(d.Name))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lab's file server does not answer: %w%s", ctx.Err(), l.logTail(d.Name))
		case <-tick.C:
		}
	}
}
