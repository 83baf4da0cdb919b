package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// facts is what a node says about its machine.
type facts struct {
	arch, kernel, osImage         string
	machineID, systemUUID, bootID string
	cpus                          int
	memoryKiB, diskKiB            int64
}

func readFacts() (facts, error) {
	f := facts{
		arch: runtime.GOARCH, kernel: read("/proc/sys/kernel/osrelease"), osImage: "Linux",
		machineID: read("/etc/machine-id"), systemUUID: read("/sys/class/dmi/id/product_uuid"), bootID: read("/proc/sys/kernel/random/boot_id"),
		cpus: runtime.NumCPU(),
	}
	for line := range strings.Lines(read("/etc/os-release")) {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			f.osImage = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		if v, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			if _, err := fmt.Sscanf(v, "%d", &f.memoryKiB); err != nil {
				return f, fmt.Errorf("reading /proc/meminfo: %w", err)
			}
		}
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs("/var/lib", &st); err != nil {
		return f, fmt.Errorf("reading the size of /var/lib: %w", err)
	}
	f.diskKiB = int64(st.Blocks) * st.Bsize / 1024
	return f, nil
}

// read returns a small file without its final newline; one that is not there is empty.
func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (f facts) resources() map[string]string {
	return map[string]string{
		"cpu": fmt.Sprint(f.cpus), "memory": fmt.Sprintf("%dKi", f.memoryKiB), "pods": "110",
		"ephemeral-storage": fmt.Sprintf("%dKi", f.diskKiB), "hugepages-2Mi": "0",
	}
}

func (f facts) info(version string) *kubeapi.NodeInfo {
	return &kubeapi.NodeInfo{
		MachineID: f.machineID, SystemUUID: f.systemUUID, BootID: f.bootID, KernelVersion: f.kernel, OSImage: f.osImage,
		ContainerRuntimeVersion: "containerd://2.1.5-k3s1", KubeletVersion: version, KubeProxyVersion: version,
		OperatingSystem: "linux", Architecture: f.arch,
	}
}

// nodeEnv is the annotation of the K3S_ variables: secrets are replaced.
func nodeEnv() string {
	env := map[string]string{}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "K3S_") {
			continue
		}
		if strings.Contains(name, "TOKEN") || strings.Contains(name, "SECRET") {
			value = "********"
		}
		env[name] = value
	}
	b, err := json.Marshal(env)
	if err != nil {
		return "{}" // a map of strings cannot fail
	}
	return string(b)
}
