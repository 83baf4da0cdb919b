package acceptance

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

const (
	// copyImage is the image that BenchmarkCopy copies, of copySize bytes without a hole.
	copyImage = "bench-copy.img"
	copySize  = 1 << 30
	// copyRounds is how often each way is gone, in turn with the others: the machine may be busy with something else, and
	// the median counts.
	copyRounds = 3
)

// BenchmarkCopy measures how fast an image gets from one hypervisor to another: as a node's disk is made by the provider,
// with the checks of the copy and the clone; through virsh vol-download and vol-upload, joined by a pipe; and by cp from
// file to file, which is what the disks can do.
func BenchmarkCopy(b *testing.B) {
	l := inLab(b)
	if len(l.Hypervisors) < 2 {
		b.Skip("needs a lab with 2 hypervisors: lab up -hypervisors 2")
	}
	source, target := placeCopyImage(b, l)
	ways := []struct {
		name string
		// run copies the image, and returns what undoes the rest of what it did.
		run func(testing.TB, *lab.Lab) (undo func())
	}{
		{"provider", providerCopy},
		{"virsh", virshCopy},
		{"cp", func(t testing.TB, _ *lab.Lab) func() {
			run(t, exec.Command("cp", "--reflink=never", source, target))
			return func() {}
		}},
	}
	for b.Loop() {
		times := make([][]time.Duration, len(ways))
		for range copyRounds {
			for i, way := range ways {
				clearCopies(b, l, target)
				start := time.Now()
				undo := way.run(b, l)
				times[i] = append(times[i], time.Since(start))
				undo()
			}
		}
		for i, way := range ways {
			slices.Sort(times[i])
			b.ReportMetric(copySize/float64(1<<20)/times[i][copyRounds/2].Seconds(), "MiB/s/"+way.name)
		}
	}
}

const secondHV = "hv-b"

// placeCopyImage makes the image on the first hypervisor, and returns its path and that of its copy on the second as this
// machine sees them. The image and all copies go away with the test.
func placeCopyImage(b *testing.B, l *lab.Lab) (source, target string) {
	b.Helper()
	source = filepath.Join(poolDir(b, l, firstHV, lab.TemplatesPool), copyImage)
	b.Cleanup(func() {
		os.Remove(source)
		virsh(b, l, firstHV, "pool-refresh", lab.TemplatesPool)
	})
	file, err := os.Create(source)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	piece := make([]byte, 1<<20)
	_, _ = rand.Read(piece)
	for range copySize / len(piece) {
		if _, err := file.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	virsh(b, l, firstHV, "pool-refresh", lab.TemplatesPool)
	target = filepath.Join(poolDir(b, l, secondHV, lab.DefaultPool), copyImage)
	b.Cleanup(func() { clearCopies(b, l, target) })
	return source, target
}

// poolDir is where the directory of a storage pool lies on this machine.
func poolDir(t testing.TB, l *lab.Lab, hv, pool string) string {
	t.Helper()
	var def struct {
		Path string `xml:"target>path"`
	}
	if err := xml.Unmarshal([]byte(virsh(t, l, hv, "pool-dumpxml", pool)), &def); err != nil {
		t.Fatal(err)
	}
	path, err := l.HostPath(hv, def.Path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// clearCopies removes every copy of the image from the second hypervisor.
func clearCopies(t testing.TB, l *lab.Lab, target string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(target), "*"+copyImage+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	virsh(t, l, secondHV, "pool-refresh", lab.DefaultPool)
}

// providerCopy makes the disk of a node whose hypervisor lacks the template.
func providerCopy(t testing.TB, l *lab.Lab) (undo func()) {
	t.Helper()
	configs := map[string]hypervisor.Config{}
	for _, h := range l.Hypervisors {
		configs[h.Name] = hypervisor.Config{URI: h.URI, VirtType: l.VirtType}
	}
	fleet := hypervisor.New(configs, hypervisor.TemplateRef{Hypervisor: firstHV, Pool: lab.TemplatesPool, Volume: copyImage}, 1)
	ctx := context.Background()
	s := machine.Spec{Hypervisor: secondHV, UUID: uuid.NewString(), MAC: "52:54:00:00:be:01", Network: lab.Network, Record: record.Record{
		ClusterID: uuid.NewString(), ClusterName: "bench", Pool: "copy", Role: record.Agent, Ordinal: 1, Phase: record.Creating,
		Shape: record.Shape{VCPUs: 1, MemoryMiB: 512, DiskGiB: 2, StoragePool: lab.DefaultPool, Clone: record.Overlay},
	}}
	if err := fleet.Define(ctx, s); err != nil {
		t.Fatal(err)
	}
	undo = func() {
		if err := fleet.Delete(ctx, machine.Machine{Hypervisor: s.Hypervisor, Name: s.Name(), UUID: s.UUID, Record: s.Record}); err != nil {
			t.Error(err)
		}
	}
	if err := fleet.CloneDisk(ctx, s); err != nil {
		undo()
		t.Fatal(err)
	}
	return undo
}

// virshCopy copies the image as one would by hand.
func virshCopy(t testing.TB, l *lab.Lab) (undo func()) {
	t.Helper()
	virsh(t, l, secondHV, "vol-create-as", lab.DefaultPool, copyImage, fmt.Sprint(copySize, "B"), "--allocation", "0", "--format", "raw")
	uris := make([]any, 0, 2)
	for _, hv := range []string{firstHV, secondHV} {
		h, err := l.Hypervisor(hv)
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, h.URI)
	}
	script := fmt.Sprintf("virsh -q -c '%s' vol-download --pool "+lab.TemplatesPool+" "+copyImage+" /dev/stdout | "+
		"virsh -q -c '%s' vol-upload --pool "+lab.DefaultPool+" "+copyImage+" /dev/stdin", uris...)
	run(t, exec.Command("bash", "-euo", "pipefail", "-c", script))
	return func() {}
}

func run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}
