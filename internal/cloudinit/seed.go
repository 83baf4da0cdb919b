package cloudinit

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// NetworkConfig is the network configuration of a VM with one network card, known by its hardware address: what the
// kernel calls it depends on the machine type and the image. Addresses come by DHCP, and by router advertisements.
//
// DHCP servers are shown the hardware address too, instead of an identifier that the clones of an image may share.
// A text that is no hardware address has no network configuration: the result is nil, which ISO refuses.
func NetworkConfig(mac string) []byte {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return nil
	}
	type match struct {
		MACAddress text `yaml:"macaddress"`
	}
	type ethernet struct {
		Match          match `yaml:"match"`
		DHCP4          bool  `yaml:"dhcp4"`
		DHCPIdentifier text  `yaml:"dhcp-identifier"`
	}
	// Netplan, version 2 (https://docs.cloud-init.io/en/latest/reference/network-config-format-v2.html).
	b, err := encode(struct {
		Version   int                 `yaml:"version"`
		Ethernets map[string]ethernet `yaml:"ethernets"`
	}{2, map[string]ethernet{"primary": {match{text(hw.String())}, true, "mac"}}})
	if err != nil {
		return nil
	}
	return b
}

// Seed is what a VM finds on the disk that cloud-init reads.
type Seed struct {
	// InstanceID is new for every VM and stays for its life: cloud-init runs once for each. The UUID of the VM is fit.
	InstanceID string
	// LocalHostname is the name of the VM.
	LocalHostname string
	// UserData is nil in a seed that asks for nothing.
	UserData []byte
	// NetworkConfig is what NetworkConfig returns.
	NetworkConfig []byte
}

// Scrubbed is the seed that takes this one's place once the VM has done what it was told: the same VM and network, and
// no secret. As long as the instance's id is the same, cloud-init does nothing anew, and takes nothing back: mounts, files
// and users are made once for each instance. Only what it does at every boot, bootcmd, is not done any more.
func (s Seed) Scrubbed() Seed {
	s.UserData = nil
	return s
}

// SeedSize is the size of every seed image in bytes. As all are of one size, a seed that is written over another leaves
// none of its bytes.
const SeedSize = 1 << 20

// ISO is the seed as the image of a disk, SeedSize long. The image is made in memory alone, as user-data may hold
// secrets; the same seed gives the same bytes.
func ISO(s Seed) ([]byte, error) {
	if s.InstanceID == "" || s.LocalHostname == "" {
		return nil, errors.New("encode seed: no instance id or hostname")
	}
	if len(s.NetworkConfig) == 0 {
		return nil, errors.New("encode seed: no network configuration for the hardware address of the VM")
	}
	if s.UserData == nil {
		s.UserData = []byte(blank)
	}
	if !strings.HasPrefix(string(s.UserData), header) {
		return nil, errors.New("encode seed: the user-data does not begin with #cloud-config")
	}
	meta, err := encode(struct {
		InstanceID    text `yaml:"instance-id"`
		LocalHostname text `yaml:"local-hostname"`
	}{text(s.InstanceID), text(s.LocalHostname)})
	if err != nil {
		return nil, fmt.Errorf("encode seed: %w", err)
	}
	image, err := isoImage([]isoFile{
		{"meta-data", meta},
		{"network-config", s.NetworkConfig},
		{"user-data", s.UserData},
	})
	if err != nil {
		return nil, fmt.Errorf("encode seed: %w", err)
	}
	return image, nil
}
