package lab

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// The directories of all labs. Sockets live under runRoot, whose short name keeps their paths within the 108 bytes of
// sun_path; what can become large lives under dataRoot.
const (
	runRoot  = "/run/cockpit-lab"
	dataRoot = "/var/lib/cockpit-lab"
	netnsDir = "/run/netns"
)

// The LAN exists in the lab's own network namespaces only, so every lab has the same.
var (
	lanPrefix  = netip.MustParsePrefix("10.77.0.0/24")
	lanGateway = netip.MustParseAddr("10.77.0.1")
	dhcpFirst  = netip.MustParseAddr("10.77.0.100")
	dhcpLast   = netip.MustParseAddr("10.77.0.250")
)

// maxHypervisors is bounded by their letters and by the addresses below the DHCP range.
const maxHypervisors = 26

// Names of what stands on every hypervisor, of the storage pool on the first that holds the golden image, and of the one
// whose directory the first two hypervisors share, as by NFS; it holds the golden image as well.
const (
	Network       = "default"
	DefaultPool   = "default"
	TemplatesPool = "templates"
	SharedPool    = "shared"
)

// sharers is how many hypervisors share the pool.
const sharers = 2

// Paths inside a hypervisor's mount namespace.
const (
	defaultPoolPath   = "/var/lib/libvirt/images"
	templatesPoolPath = "/var/lib/libvirt/templates"
)

// nameForm keeps names fit for directories, host names and network namespaces.
var nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$`)

// hypervisorForm is the form of hypervisorName.
var hypervisorForm = regexp.MustCompile(`^hv-[a-z]$`)

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q is no name for a lab: up to 20 lower-case letters, digits and dashes, a letter first", name)
	}
	return nil
}

// layout says where everything of the lab with that name is; it needs no state to be known, so that a lab whose state was
// lost can still be taken down.
type layout struct{ name string }

func (l layout) runDir() string           { return filepath.Join(runRoot, l.name) }
func (l layout) dataDir() string          { return filepath.Join(dataRoot, l.name) }
func (l layout) stateFile() string        { return filepath.Join(l.dataDir(), "state.json") }
func (l layout) lockFile() string         { return filepath.Join(runRoot, l.name+".lock") }
func (l layout) logFile(of string) string { return filepath.Join(l.dataDir(), "log", of+".log") }
func (l layout) netnsPrefix() string      { return "cklab-" + l.name + "-" }
func (l layout) leaseFile() string        { return filepath.Join(l.dataDir(), "leases") }
func (l layout) caFile() string           { return filepath.Join(l.dataDir(), "ca.crt") }
func (l layout) lanNetns() string         { return l.netnsPrefix() + "lan" }

// sharedDir is the directory of the shared pool. Nothing is mounted over it, so that those who share it see it at one path.
func (l layout) sharedDir() string { return filepath.Join(l.dataDir(), "shared") }

func hypervisorName(i int) string { return "hv-" + string(rune('a'+i)) }

// newHypervisor is the hypervisor number i (from 0) of the lab.
func (l layout) newHypervisor(i int) Hypervisor {
	name := hypervisorName(i)
	address := lanGateway.As4()
	address[3] += byte(10 + i)
	socket := filepath.Join(l.runDir(), name, "libvirt-sock")
	return Hypervisor{
		Name:     name,
		URI:      "qemu+unix:///system?socket=" + socket,
		HostUUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("cockpit-lab/"+l.name+"/"+name)).String(),
		Address:  netip.AddrFrom4(address),
		Netns:    l.netnsPrefix() + name,
	}
}

// shares says whether a hypervisor has the shared pool.
func shares(hv string) bool { return hv < hypervisorName(sharers) }

// mounts are a hypervisor's own directories: on the machine, and where its daemon sees them.
func (l layout) mounts(hv string) []mount {
	data := filepath.Join(l.dataDir(), hv)
	return []mount{
		{filepath.Join(data, "etc"), "/etc/libvirt"},
		{filepath.Join(data, "lib"), "/var/lib/libvirt"},
		{filepath.Join(data, "cache"), "/var/cache/libvirt"},
		{filepath.Join(data, "log"), "/var/log/libvirt"},
		{filepath.Join(l.runDir(), hv), "/run/libvirt"},
	}
}

type mount struct{ from, at string }

// pools are a hypervisor's storage pools: name, and directory as its daemon sees it.
func (l layout) pools(hv string) []pool {
	pools := []pool{{DefaultPool, defaultPoolPath}, {TemplatesPool, templatesPoolPath}}
	if shares(hv) {
		pools = append(pools, pool{SharedPool, l.sharedDir()})
	}
	return pools
}

type pool struct{ name, path string }

// host returns where a path of the hypervisor lies on the machine.
func (l layout) host(hv, path string) (string, bool) {
	if shares(hv) && strings.HasPrefix(path+"/", l.sharedDir()+"/") {
		return path, true
	}
	for _, m := range l.mounts(hv) {
		if rel, ok := strings.CutPrefix(path, m.at+"/"); ok {
			return filepath.Join(m.from, rel), true
		}
	}
	return "", false
}
