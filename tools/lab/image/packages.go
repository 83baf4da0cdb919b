package image

// common are the packages of every image.
var common = []string{
	// A system that boots, and is told who it is by cloud-init.
	"systemd-sysv", "udev", "dbus", "kmod", "procps", "login", "passwd", "initramfs-tools", "lz4",
	"cloud-init", "cloud-guest-utils", "qemu-guest-agent", "e2fsprogs", "fdisk", "openssh-server", "sudo",
	// The network: systemd-networkd is quicker up than ifupdown with dhclient, and cloud-init writes its files.
	"iproute2", "iputils-ping", "netbase", "ca-certificates", "curl", "ethtool",
	// What k3s, kube-proxy and the CNI plugins use of a host.
	"iptables", "nftables", "conntrack", "ipset", "socat",
	// What CSI drivers use of a host: NFS (csi-driver-nfs, Longhorn RWX) and iSCSI (Longhorn).
	"nfs-common", "open-iscsi",
	// Somebody will look at a broken node through its console.
	"less", "vim-tiny",
}

type distribution struct {
	suite      string
	components string
	packages   []string
}

var distributions = map[string]distribution{
	"debian": {
		suite:      "bookworm",
		components: "main",
		// The cloud kernel has virtio but neither AHCI nor IDE: whatever a guest must see has to be on virtio.
		packages: []string{"linux-image-cloud-amd64", "systemd-resolved"},
	},
	"ubuntu": {
		suite:      "noble",
		components: "main,universe",
		packages:   []string{"linux-image-virtual", "systemd-resolved", "netplan.io"},
	},
}

// releases are the version numbers that people know suites by.
var releases = map[string]string{"bookworm": "12", "trixie": "13", "jammy": "22.04", "noble": "24.04"}
