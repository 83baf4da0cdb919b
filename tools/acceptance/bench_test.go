package acceptance

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// BenchmarkServer measures an apply of one server from its start to the end, split by phase, and beside it the floor: the
// same clone, defined and started by hand with virsh, until its guest agent answers.
func BenchmarkServer(b *testing.B) {
	l := inLab(b)
	for b.Loop() {
		c := newQuickstart(b, l, "bench", 0)
		report(b, l, c, "server", func() { c.run("apply", "-auto-approve") })
		clone := cloneOf(b, l, "bench-cp-1")
		c.run("destroy", "-auto-approve")
		b.ReportMetric(floor(b, l, clone).Seconds(), "s/floor-agent")
	}
}

// BenchmarkWorkers measures the growth of a pool by one worker, then by two at once: the second must cost little.
func BenchmarkWorkers(b *testing.B) {
	l := inLab(b)
	for b.Loop() {
		c := newQuickstart(b, l, "bench", 0)
		c.run("apply", "-auto-approve")
		report(b, l, c, "one", func() { c.run("apply", "-auto-approve", "-var=workers=1") })
		report(b, l, c, "two", func() { c.run("apply", "-auto-approve", "-var=workers=3") })
	}
}

var (
	phaseLine = regexp.MustCompile(`phase done:.*`)
	phaseName = regexp.MustCompile(`\bphase=(\w+)`)
	phaseTime = regexp.MustCompile(`\belapsed_ms=(\d+)`)
)

// report runs an apply and reports its time, and for each phase the longest time that a node spent in it.
func report(b *testing.B, l *lab.Lab, c *cli, what string, apply func()) {
	b.Helper()
	log := c.logTo(what+".log", "INFO")
	start := time.Now()
	apply()
	b.ReportMetric(time.Since(start).Seconds(), "s/"+what+"-apply")
	longest := map[string]int{}
	for _, line := range phaseLine.FindAllString(readFile(b, log), -1) {
		name, elapsed := phaseName.FindStringSubmatch(line), phaseTime.FindStringSubmatch(line)
		if name == nil || elapsed == nil {
			b.Fatalf("a phase without its name or time: %s", line)
		}
		ms, err := strconv.Atoi(elapsed[1])
		if err != nil {
			b.Fatal(err)
		}
		longest[name[1]] = max(longest[name[1]], ms)
	}
	for _, phase := range []string{"clone", "start", "agent", "bootstrap", "ready", "seal"} {
		b.ReportMetric(float64(longest[phase])/1000, "s/"+what+"-"+phase)
	}
}

// clone is a VM that can be made again by hand.
type clone struct {
	xml  string
	seed string
}

// cloneOf keeps the definition and the seed of a node.
func cloneOf(b *testing.B, l *lab.Lab, node string) clone {
	b.Helper()
	text := virsh(b, l, firstHV, "dumpxml", "--inactive", node)
	for _, v := range volumes(b, l, firstHV, strings.TrimSuffix(node, "-cp-1")) {
		if strings.HasSuffix(v, "-seed.iso") {
			return clone{xml: text, seed: readFile(b, volumePath(b, l, firstHV, v))}
		}
	}
	b.Fatalf("node %s has no seed", node)
	return clone{}
}

// floor makes the clone with virsh alone and returns the time from its first command until the guest agent answers.
func floor(b *testing.B, l *lab.Lab, c clone) time.Duration {
	b.Helper()
	const name = "floor"
	var d struct {
		UUID  string `xml:"uuid"`
		Disks []struct {
			Source struct {
				File string `xml:"file,attr"`
			} `xml:"source"`
		} `xml:"devices>disk"`
	}
	if err := xml.Unmarshal([]byte(c.xml), &d); err != nil || len(d.Disks) != 2 {
		b.Fatalf("the node has %d disks: %v", len(d.Disks), err)
	}
	dir := filepath.Dir(d.Disks[0].Source.File)
	root, seed := filepath.Join(dir, name+".qcow2"), filepath.Join(dir, name+".iso")
	text := strings.NewReplacer(
		"<name>bench-cp-1</name>", "<name>"+name+"</name>", d.UUID, "11111111-2222-3333-4444-555555555555",
		d.Disks[0].Source.File, root, d.Disks[1].Source.File, seed, "bench-cp-1-console.log", name+"-console.log",
	).Replace(c.xml)
	text = regexp.MustCompile(`(?s)<metadata>.*</metadata>`).ReplaceAllString(text, "")
	file := filepath.Join(b.TempDir(), "floor.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	host, err := l.HostPath(firstHV, seed)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(host, []byte(c.seed), 0o600); err != nil {
		b.Fatal(err)
	}
	template := strings.TrimSpace(virsh(b, l, firstHV, "vol-path", "--pool", lab.TemplatesPool, l.Template))

	start := time.Now()
	virsh(b, l, firstHV, "vol-create-as", lab.DefaultPool, name+".qcow2", "8G", "--format", "qcow2",
		"--backing-vol", template, "--backing-vol-format", "qcow2")
	virsh(b, l, firstHV, "define", file)
	defer virsh(b, l, firstHV, fmt.Sprintf("undefine %[1]s; pool-refresh %[2]s; vol-delete --pool %[2]s %[1]s.qcow2; vol-delete --pool %[2]s %[1]s.iso",
		name, lab.DefaultPool))
	virsh(b, l, firstHV, "start", name)
	defer virsh(b, l, firstHV, "destroy", name)
	for limit := start.Add(10 * time.Minute); time.Now().Before(limit); time.Sleep(500 * time.Millisecond) {
		if _, err := l.Virsh(b.Context(), firstHV, "qemu-agent-command", name, `{"execute":"guest-ping"}`); err == nil {
			return time.Since(start)
		}
	}
	b.Fatal("the hand-made clone's agent does not answer")
	return 0
}
