# Finishes the system inside the image; its standard input of the assembling script's chroot.

# What must differ from node to node is made by each at its first boot. An empty machine-id (not a missing one) does that
# without systemd taking the boot for the first one of the system and applying all presets again.
: > /etc/machine-id
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /var/lib/systemd/random-seed
rm -rf /var/lib/cloud /var/log/cloud-init*
echo 'GenerateName=yes' > /etc/iscsi/initiatorname.iscsi
echo localhost > /etc/hostname

# k3s hands this file to pods, for which the stub resolver on loopback is of no use.
ln -sf /run/systemd/resolve/resolv.conf /etc/resolv.conf

systemctl --quiet enable systemd-networkd.service systemd-networkd-wait-online.service systemd-resolved.service
# udev starts the agent when the virtio channel appears.
[ -z "$MASK_AGENT" ] || systemctl --quiet mask qemu-guest-agent.service
# Socket activation is enough for NFS v3 and for iscsid; mount.nfs starts what it needs.
systemctl --quiet disable rpcbind.service open-iscsi.service nfs-client.target

if [ -n "$EMULATED" ]; then
	systemctl --quiet mask \
		apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
		systemd-pstore.service systemd-networkd-persistent-storage.service cloud-init-hotplugd.socket \
		getty@tty1.service systemd-update-utmp.service systemd-update-utmp-runlevel.service nfs-blkmap.service \
		systemd-binfmt.service proc-sys-fs-binfmt_misc.automount dev-hugepages.mount sys-kernel-debug.mount \
		sys-kernel-tracing.mount sys-fs-fuse-connections.mount modprobe@fuse.service modprobe@drm.service \
		modprobe@dm_mod.service modprobe@loop.service modprobe@efi_pstore.service \
		modprobe@configfs.service systemd-fsck-root.service systemd-remount-fs.service systemd-pcrphase.service \
		systemd-pcrphase-sysinit.service systemd-random-seed.service rpc-statd-notify.service
	# The kernel mounts the root as it is meant to be, and ext4's journal mends it.
	echo '# The kernel command line says it all.' > /etc/fstab
	mkdir -p /etc/systemd/system-generators
	for generator in cryptsetup debug getty gpt-auto hibernate-resume integritysetup rc-local run system-update sysv veritysetup; do
		ln -s /dev/null "/etc/systemd/system-generators/systemd-$generator-generator"
	done
	ln -s /dev/null /etc/systemd/system-generators/rpc-pipefs-generator
	systemctl --quiet enable serial-getty@ttyS0.service grow-root.service
	# cloud-init's generator looks for a data source with a long shell script before anything else may start. Here
	# there is only one, so the target it would enable is enabled for good.
	ln -s /dev/null /etc/systemd/system-generators/cloud-init-generator
	ln -s /lib/systemd/system/cloud-init.target /etc/systemd/system/multi-user.target.wants/cloud-init.target
	. /etc/os-release
	sed -i "s/debian/$ID/" /etc/cloud/cloud.cfg
	# cloud-init finds its default user there and only gives it the keys.
	useradd --create-home --shell /bin/bash --groups adm,sudo "$ID"
	# Without the jsonschema module cloud-init skips validating its configuration, which costs more than acting on it.
	rm -rf /usr/lib/python3/dist-packages/jsonschema
fi

update-initramfs -u -k all >/dev/null 2>&1
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /tmp/* /var/tmp/*
