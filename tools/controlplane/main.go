// Command controlplane is the real Kubernetes control plane in one program: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, chosen by the first argument.
//
// The lab runs one of each behind every k3s cluster that its guests form. One program instead of four is linked once,
// which on a small machine saves minutes and some 300 MB.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// walSegment is the size of etcd's log segments in bytes. etcd allocates each of them, and one for later, in full: with its
// own 64 MB more than a cluster of the lab writes in its life.
const walSegment = 4 << 20

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "etcd":
		wal.SegmentSizeBytes = walSegment
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]")
	os.Exit(2)
}
