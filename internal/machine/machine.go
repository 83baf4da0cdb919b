// Package machine is the vocabulary that the sequencing side (package cluster) and the virtualisation side (package
// hypervisor) share: plain data about VMs, without a word of libvirt or k3s.
package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Sentinel errors of the virtualisation side.
var (
	// ErrUnreachable: the hypervisor could not be asked. What stands on it is unknown, never "gone".
	ErrUnreachable = errors.New("the hypervisor cannot be reached")
	// ErrNotFound: a hypervisor that answered has no such domain, volume, pool or network.
	ErrNotFound = errors.New("not found")
	// ErrForeign: a domain or volume of that name exists without our record.
	ErrForeign = errors.New("exists and was not made by this provider")
)

// Hypervisor is a configured hypervisor.
type Hypervisor struct {
	Name string
	// Schedulable says whether new nodes may go there.
	Schedulable bool
	// Overcommit says how much more may be handed out than there is.
	Overcommit Overcommit
}

// Overcommit holds, for each kind of resource, how many times what a hypervisor has may be handed out to VMs.
type Overcommit struct {
	CPU    float64
	Memory float64
	Disk   float64
}

// DefaultOvercommit is what holds where nothing else is configured. Virtual CPUs share a CPU well; memory and disks
// that run full halt VMs.
var DefaultOvercommit = Overcommit{CPU: 4, Memory: 1, Disk: 1}

// Guest is what can be seen inside a VM, through its guest agent. Calls are bounded by ctx; a guest that does not
// answer gives guestagent.ErrNotConnected, which is worth a retry while the VM boots; a VM that is not powered on gives
// guestagent.ErrNotRunning, and one that is halted guestagent.ErrPaused.
type Guest interface {
	// Connected reports the state of the agent's channel as the hypervisor sees it, without asking the guest.
	Connected(ctx context.Context) (bool, error)
	// Ping asks the agent itself.
	Ping(ctx context.Context) error
	// Addresses returns the global-scope IP addresses of the interface with that MAC, IPv4 first; none is no error.
	Addresses(ctx context.Context, mac string) ([]string, error)
	// ReadFile returns a whole file; a missing one is fs.ErrNotExist.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile puts content in the place of a file's, not atomically. The file's mode stays; a new file is open to every
	// user of the guest, so that it should be made with its mode first. A missing directory is fs.ErrNotExist.
	WriteFile(ctx context.Context, path string, content []byte) error
	// Run executes a program and returns its standard output followed by its standard error; a non-zero exit is an
	// error.
	Run(ctx context.Context, path string, args ...string) ([]byte, error)
}

// Power is the power state of a VM.
type Power string

// The power states.
const (
	Running Power = "running"
	Stopped Power = "stopped"
	// Paused covers suspended domains and those halted by the hypervisor (for example on a full disk).
	Paused Power = "paused"
)

// Machine is a VM of ours as one hypervisor reports it.
type Machine struct {
	Hypervisor string
	Name       string
	UUID       string
	MAC        string
	Power      Power
	Record     record.Record
}

// Domain is a VM as a survey lists it, ours or not.
type Domain struct {
	Name      string
	UUID      string
	Power     Power
	VCPUs     int
	MemoryMiB int
}

// Host is what a hypervisor has and which VMs stand on it, whether they run or not.
type Host struct {
	// CPUs is the number of its logical CPUs.
	CPUs      int
	MemoryMiB int
	Domains   []Domain
}

// Survey is one look at all hypervisors from afar: it costs a constant number of calls for each, however many VMs there
// are, and does not tell which of them are ours.
type Survey struct {
	// Hosts are the hypervisors that answered, by name.
	Hosts map[string]Host
	// Unreachable holds the reason for each hypervisor that did not answer, by name.
	Unreachable map[string]error
}

// Observation is what is known of VMs of ours after a survey and the reading of records.
type Observation struct {
	Survey
	Machines []Machine
	// Unreadable are the VMs of which no more is known than that this provider made them. A node that is not among
	// Machines may be one of them.
	Unreadable []Unreadable
}

// Unreadable is a VM of ours whose record cannot be read: it is damaged, or a newer provider wrote it. No call changes
// or removes such a VM.
type Unreadable struct {
	Hypervisor string
	Name       string
	UUID       string
	// Err is record.ErrNewer, or says what is wrong with the record.
	Err error
}

// OfCluster returns the machines of one cluster, by id or else by name.
func (o Observation) OfCluster(idOrName string) []Machine {
	var out []Machine
	for _, m := range o.Machines {
		if m.Record.ClusterID == idOrName || m.Record.ClusterName == idOrName {
			out = append(out, m)
		}
	}
	return out
}

// Spec is everything that is needed to make one VM.
type Spec struct {
	Hypervisor string
	UUID       string
	MAC        string
	// Network is a libvirt network, Bridge a host bridge; exactly one is set.
	Network string
	Bridge  string
	Record  record.Record
}

// Name is the domain's name.
func (s Spec) Name() string { return s.Record.NodeName() }

// RootVolume and SeedVolume name a node's volumes. They carry a part of the VM's UUID: a node that is made anew never
// meets the volumes of its predecessor, and a left-over volume can be told from a foreign one by its name.
func RootVolume(node, uuid string) string { return fmt.Sprintf("%s-%.8s.qcow2", node, uuid) }

// SeedVolume is the name of the volume that holds a node's cloud-init seed.
func SeedVolume(node, uuid string) string { return fmt.Sprintf("%s-%.8s-seed.iso", node, uuid) }

// DataVolume is the name of the volume of a node's data disk.
func DataVolume(node, uuid string) string { return fmt.Sprintf("%s-%.8s-data.qcow2", node, uuid) }

// DataSerial is the serial number by which a guest finds its data disk, under /dev/disk/by-id/virtio-<serial>.
const DataSerial = "cockpit-data"

// Field is what in a Request a Problem is about.
type Field string

// The fields of a Request.
const (
	FieldHypervisor  Field = "hypervisor"
	FieldTemplate    Field = "template"
	FieldStoragePool Field = "storage_pool"
	FieldNetwork     Field = "network"
	FieldBridge      Field = "bridge"
	FieldDisk        Field = "disk_gib"
	FieldName        Field = "name"
	FieldCluster     Field = "cluster_id"
	// FieldVCPUs, FieldMemory and FieldDisk are about too little room, too; FieldPlacement is about the rules of
	// placement, FieldHosts about the hypervisors of a manual one.
	FieldVCPUs     Field = "vcpus"
	FieldMemory    Field = "memory_gib"
	FieldPlacement Field = "placement"
	FieldHosts     Field = "placement.hosts"
	// FieldDataDisk is about the size of a data disk, FieldDataPool about its storage pool.
	FieldDataDisk    Field = "data_disk.size_gib"
	FieldDataPool    Field = "data_disk.storage_pool"
	FieldHostDevices Field = "host_devices"
	// FieldUpgrade is about the extra nodes of a rolling change.
	FieldUpgrade Field = "upgrade_settings"
	// FieldClone and FieldUserData are about what cannot be changed on a node that stands.
	FieldClone    Field = "clone"
	FieldUserData Field = "extra_user_data"
	// FieldCNI and those of the storage tiers are about the whole of an add-on, the others about a part of it.
	FieldCNI             Field = "cni"
	FieldPodCIDR         Field = "cni.pod_cidr"
	FieldServiceCIDR     Field = "cni.service_cidr"
	FieldCNIChart        Field = "cni.chart"
	FieldCNIValues       Field = "cni.values_yaml"
	FieldCSI             Field = "csi"
	FieldDefaultClass    Field = "csi.default_class"
	FieldLocalPath       Field = "csi.local_path"
	FieldLocalPathValues Field = "csi.local_path.values_yaml"
	FieldNFS             Field = "csi.nfs"
	FieldNFSPool         Field = "csi.nfs.pool"
	FieldNFSServer       Field = "csi.nfs.server"
	FieldNFSChart        Field = "csi.nfs.chart"
	FieldNFSValues       Field = "csi.nfs.values_yaml"
	FieldLonghorn        Field = "csi.longhorn"
	FieldLonghornChart   Field = "csi.longhorn.chart"
	FieldLonghornValues  Field = "csi.longhorn.values_yaml"
)

// Request asks one hypervisor whether VMs could be made there.
type Request struct {
	Hypervisor  string
	StoragePool string
	DiskGiB     int
	// Data is the data disk of each VM; its zero value is none.
	Data record.DataDisk
	// HostDevices are PCI addresses of devices that the VM would get.
	HostDevices []string
	// Network and Bridge as in Spec; both are empty where they are not known yet.
	Network string
	Bridge  string
	// Names are the domains that would be made; one that exists without a record of ClusterID is a problem.
	Names     []string
	ClusterID string
}

// Problem is one reason why a Request cannot be met.
type Problem struct {
	Field Field
	// Err is the reason: ErrNotFound for a storage pool, network, bridge or template that does not exist, ErrForeign for
	// a name that is taken, ErrUnreachable for a hypervisor that does not answer, or else a plain error.
	Err error
}

// Site is what a hypervisor offers for the nodes of a Request.
type Site struct {
	// Store names the storage behind the pool. Hypervisors whose pools have the same store share its room.
	Store string
	// FreeMiB is the room left in the store, and CopyMiB what the template will take of it when it has to be brought
	// there first, else 0.
	FreeMiB int
	CopyMiB int
	// DataStore names the storage behind the pool of the data disk, which may be Store, and DataFreeMiB is the room left
	// there. They are zero where the Request asks for no data disk.
	DataStore   string
	DataFreeMiB int
}

// Export is a directory of an NFS server.
type Export struct {
	// Server is a name or an address, Path the directory.
	Server, Path string
}
