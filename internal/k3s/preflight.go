package k3s

import (
	_ "embed" // for the preflight script
	"strconv"
	"strings"
)

//go:embed preflight.sh
var preflightScript string

// PreflightScript is the POSIX shell script with the checks of a Preflight, the text of PreflightPath.
func PreflightScript() string { return preflightScript }

// How often an NFS server is tried, at five seconds each with the pause between. Routes and name resolution of a VM that boots
// for the first time may need a while; in one that runs they are there.
const (
	bootTries    = 6
	runningTries = 2
)

// Preflight is what the storage of a cluster needs of each node. The zero Preflight asks for nothing.
type Preflight struct {
	// NFS is a name or an address, which has to answer at TCP port 2049; the node has to be able to mount from it. "" asks
	// for neither.
	NFS string
	// ISCSI: the node has to attach iSCSI disks and leave them alone, as Longhorn needs it. What is installed for that is
	// started.
	ISCSI bool
}

// Command is the program that checks a VM that runs, as root. Its status is 1 where something is amiss, and its output a line
// for each trouble, which names what is amiss and how that is mended.
func (p Preflight) Command() (program string, args []string) {
	return "/bin/sh", []string{"-c", preflightScript, "preflight", strconv.Itoa(runningTries), p.nfs(), p.iscsi()}
}

// nfs and iscsi are arguments of the script. An IPv6 address has no brackets there.
func (p Preflight) nfs() string { return strings.Trim(p.NFS, "[]") }

func (p Preflight) iscsi() string {
	if p.ISCSI {
		return "true"
	}
	return ""
}
