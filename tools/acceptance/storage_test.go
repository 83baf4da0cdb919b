package acceptance

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// The cluster of TestAccStorage.
const (
	stored       = "store"
	storedServer = stored + "-cp-1"
	storedWorker = stored + "-w-1"
	longhornPath = "/var/lib/longhorn"
)

// A cluster whose storage comes and goes while its nodes stay: NFS and local paths, NFS with data on it, Longhorn in an apply that
// is killed and then goes on. At any time exactly one StorageClass is the default.
func TestAccStorage(t *testing.T) {
	t.Parallel()
	l := around(t)
	withNFS(t, l)
	s := &store{newSubject(t, l, config{
		name: stored, workers: count(1), charts: privateCharts(l), kubeconfig: true,
		moreOfWorkers: attributes{"data_disk": fmt.Sprintf(`{ size_gib = 1, mount_path = %q }`, longhornPath)},
	})}
	s.steps(t, []step{
		{"made", s.made},
		{"mounted", s.mounted},
		{"occupied", s.occupied},
		{"unfit", s.unfit},
		{"killed", s.killed},
		{"longhorn", s.longhorn},
		{"restarted", s.restarted},
		{"chosen", s.chosen},
	})
}

// nfsServer is the address of the lab's NFS server.
func nfsServer() string { return os.Getenv("LAB_NFS_SERVER") }

// withNFS skips a test in a lab that has no NFS server.
func withNFS(t *testing.T, l *lab.Lab) {
	t.Helper()
	if !l.NFS {
		t.Skip("needs a lab with an NFS server: lab up -nfs")
	}
}

// store is the cluster of TestAccStorage.
type store struct{ subject }

// csi makes tiers the storage of the cluster, and a class the default where one is named.
func (s *store) csi(standard string, tiers ...string) {
	s.want.more = attributes{
		"cni": `{ routing = "host-gw" }`,
		"csi": fmt.Sprintf("{\n%s\n%s\n}", strings.Join(tiers, "\n"), optional("default_class", quote(standard))),
	}
}

// The tiers.
const (
	localPath = `local_path = {}`
	nfsPool   = `nfs = { pool = "` + lab.NFSPool + `", nfs_version = "4.1", mount_options = ["hard"] }`
	longhorn  = `longhorn = { replica_count = 3 }`
)

// made: where the NFS export is, only the definition of a pool tells, which no hypervisor has ever mounted.
func (s *store) made(t *testing.T) {
	s.csi("", localPath, nfsPool)
	s.apply()
	s.connect()
	if got, err := readyNodes([]byte(s.c.state()[kubeconfigAddr].Raw)); err != nil || !slices.Equal(got, []string{storedServer, storedWorker}) {
		t.Fatalf("the Ready nodes are %v, %v", got, err)
	}
	s.installed(t, "local-path", "nfs")
	s.hasFlags(t, storedServer, map[string]string{"flannel-backend": "host-gw", "disable-network-policy": ""})
	for _, node := range []string{storedServer, storedWorker} {
		if got := s.node(t, node).Annotations["flannel.alpha.coreos.com/backend-type"]; got != "host-gw" {
			t.Errorf("node %s has flannel's backend %q", node, got)
		}
	}
	if got := s.c.state()[clusterAddr].CSI.NFS; got.Server != nfsServer() || got.Path != lab.NFSPath {
		t.Errorf("in the state the pool is the export %+v", got)
	}
	s.classes(t, "local-path")
	s.c.steady()
}

// mounted: what the StorageClass says can be mounted by a node, and what is written there is on the server.
func (s *store) mounted(t *testing.T) {
	s.mountable(t, s.classes(t, "local-path")["nfs"], nfsServer(), storedWorker)
}

// mountable mounts the export of a class in a guest, with the options of the class.
func (s *subject) mountable(t *testing.T, class storagev1.StorageClass, server, node string) {
	t.Helper()
	if class.Parameters["server"] != server || class.Parameters["share"] != lab.NFSPath {
		t.Errorf("the class has the parameters %v", class.Parameters)
	}
	if !slices.Contains(class.MountOptions, "hard") || !slices.ContainsFunc(class.MountOptions, func(o string) bool { return strings.HasSuffix(o, "vers=4.1") }) {
		t.Errorf("the class has the mount options %q", class.MountOptions)
	}
	file := node + ".txt"
	guestRun(t, s.l, node, "/bin/sh", "-euc", `mkdir -p /mnt/nfs; mount -t nfs -o "$1" "$2" /mnt/nfs; echo "$3" >"/mnt/nfs/$4"; umount /mnt/nfs`, "sh",
		strings.Join(class.MountOptions, ","), class.Parameters["server"]+":"+class.Parameters["share"], "written by "+node, file)
	if got := readFile(t, filepath.Join(s.l.ExportDir(), file)); got != "written by "+node+"\n" {
		t.Errorf("the server has %q", got)
	}
}

// occupied: NFS does not go while there is data on it. Without, it goes, and nothing else does.
func (s *store) occupied(t *testing.T) {
	vms := s.vms()
	s.claim(t)
	s.csi("", localPath)
	s.c.use(s.l, s.want)
	s.c.fails([]string{"nfs", "precious", "default/data"}, "plan")
	s.refused("precious")
	s.installedAs(t, "nfs", "deployed")

	s.release(t)
	s.apply()
	s.installed(t, "local-path")
	if _, there := s.classes(t, "local-path")["nfs"]; there {
		t.Error("the StorageClass nfs is still there")
	}
	if got := s.vms(); !maps.Equal(got, vms) {
		t.Errorf("the nodes were %v and are %v", vms, got)
	}
	s.c.steady()
}

// installedAs makes sure that the state has an add-on with this status.
func (s *subject) installedAs(t *testing.T, name, status string) {
	t.Helper()
	if got := s.c.state()[clusterAddr].Addons[name]; got.Status != status {
		t.Errorf("the add-on %s is %+v, want %s", name, got, status)
	}
}

// claim has a volume of NFS bound by a claim.
func (s *store) claim(t *testing.T) {
	t.Helper()
	class, size := "nfs", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "precious"},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "nfs.csi.k8s.io", VolumeHandle: "precious", VolumeAttributes: map[string]string{"server": nfsServer(), "share": lab.NFSPath},
			}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: "precious", AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	if _, err := s.api.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := s.api.CoreV1().PersistentVolumeClaims(namespace)
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the claim is bound", podStart, func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound, err
	})
}

// release deletes claim and volume.
func (s *store) release(t *testing.T) {
	t.Helper()
	if err := s.api.CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	volumes := s.api.CoreV1().PersistentVolumes()
	if err := volumes.Delete(t.Context(), "precious", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the volume is gone", podStart, func(ctx context.Context) (bool, error) {
		list, err := volumes.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
}

// unfit: a node that lacks what Longhorn needs is named before any release is made.
func (s *store) unfit(t *testing.T) {
	const program = "/usr/sbin/iscsiadm"
	guestRun(t, s.l, storedWorker, "/bin/mv", program, program+".away")
	s.csi("", localPath, longhorn)
	s.refused(storedWorker, "iscsiadm is missing", "open-iscsi")
	if all, err := s.helm("longhorn").ListReleases(); err != nil || len(all) > 0 {
		t.Errorf("there is a release all the same: %v, %v", all, err)
	}
	guestRun(t, s.l, storedWorker, "/bin/mv", program+".away", program)
}

// killed: Terraform and the provider are killed while Longhorn is being installed.
func (s *store) killed(t *testing.T) {
	asked, end := s.stall(t, releases["longhorn"].namespace, "apps", "daemonsets")
	s.c.killed(asked, "apply", "-auto-approve")
	end()
	if all := s.history(t, "longhorn"); len(all) != 1 || all[0].Info.Status != release.StatusPendingInstall {
		t.Errorf("the killed apply left %d revisions, the first %s", len(all), all[0].Info.Status)
	}
}

// longhorn: the next apply goes on where the killed one stopped. Longhorn takes over as the default class, keeps as many copies
// as there are nodes, and has its data on the disk that the pool gives it.
func (s *store) longhorn(t *testing.T) {
	vms := s.vms()
	mentions(t, s.apply(), "replica_count is 3")
	s.installed(t, "local-path", "longhorn")
	if all := s.history(t, "longhorn"); len(all) != 1 {
		t.Errorf("the release has %d revisions", len(all))
	}
	hasValues(t, s.deployed(t, "longhorn"), map[string]any{
		"persistence.defaultClassReplicaCount": 2, "defaultSettings.defaultDataPath": longhornPath,
		"defaultSettings.nodeDrainPolicy": "block-if-contains-last-replica",
	})
	s.classes(t, "longhorn")
	if got := strings.TrimSpace(guestRun(t, s.l, storedWorker, "/usr/bin/findmnt", "--noheadings", "--output", "FSTYPE", "--mountpoint", longhornPath)); got != "ext4" {
		t.Errorf("at %s there is %q", longhornPath, got)
	}
	if got := s.vms(); !maps.Equal(got, vms) {
		t.Errorf("the nodes were %v and are %v", vms, got)
	}
	s.c.steady()
}

// restarted: k3s brings no default class of its own back.
func (s *store) restarted(t *testing.T) {
	guestRun(t, s.l, storedServer, "/usr/bin/systemctl", "restart", "k3s")
	await(t, "the API answers again", silence, func(ctx context.Context) (bool, error) {
		_, err := s.api.CoreV1().Nodes().Get(ctx, storedServer, metav1.GetOptions{})
		return err == nil, err
	})
	s.open(t, storedServer, storedWorker)
	s.classes(t, "longhorn")
	s.c.steady()
}

// chosen: the user's choice of the default class holds, also against somebody who makes another one the default.
func (s *store) chosen(t *testing.T) {
	s.csi("local-path", localPath, longhorn)
	s.apply()
	class := s.classes(t, "local-path")["local-path"]
	s.c.steady()

	class.Annotations["storageclass.kubernetes.io/is-default-class"] = "false"
	if _, err := s.api.StorageV1().StorageClasses().Update(t.Context(), &class, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.c.drifted("local-path", "drifted")
	s.apply()
	s.classes(t, "local-path")
	s.installed(t, "local-path", "longhorn")
	s.c.steady()
}
