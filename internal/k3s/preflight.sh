#!/bin/sh
# Looks whether a VM has what the storage of its cluster needs, as root:
#
#   preflight.sh TRIES NFS-SERVER ISCSI
#
# NFS-SERVER is a name or an address whose TCP port 2049 is tried TRIES times, ISCSI is "true" where Longhorn needs a node
# that attaches iSCSI disks; either may be empty. Everything that is amiss is one line on standard output, and the status 1
# then. Nothing is changed but that what is installed and not running, iscsid and kernel modules, is started.
#
# PREFLIGHT_ROOT is for tests: a directory to take for the root of the file system.
set -u
root=${PREFLIGHT_ROOT:-}
PATH=$PATH:$root/usr/sbin:$root/sbin
LC_ALL=C
export PATH LC_ALL

tries=$1
nfs_server=$2
iscsi=$3
port=2049
status=0

# amiss TEXT tells of one trouble.
amiss() {
	printf '%s\n' "$1"
	status=1
}

have() { command -v "$1" >/dev/null 2>&1; }

# has_module NAME reports whether the kernel has a module, built in or by now loaded.
has_module() { [ -d "$root/sys/module/$1" ] || modprobe -q "$1" >/dev/null 2>&1; }

active() { systemctl is-active --quiet "$1" >/dev/null 2>&1; }

# reach tries once to connect to the server, and sets why. bash, which every distribution with systemd has, needs no other
# program for that; getent tells a name that is not known from a server that is silent.
reach() {
	timeout 3 getent ahosts "$nfs_server" >/dev/null 2>&1
	case $? in
	2)
		why="its name is not known here"
		return 1
		;;
	124)
		why="no name server answers for its name"
		return 1
		;;
	esac
	# shellcheck disable=SC2016 # for the bash that is called
	said=$(timeout 3 bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$nfs_server" "$port" 2>&1)
	case $? in
	0) return 0 ;;
	124) why="it does not answer; a firewall may be between" ;;
	127) why="this cannot be tried, because bash is missing" ;;
	*)
		case $said in
		*"Connection refused"*) why="it refuses the connection: no NFS server runs there" ;;
		*"timed out"*) why="it does not answer; a firewall may be between" ;;
		*"o route to host"* | *"is unreachable"*) why="this VM has no route to it" ;;
		*) why=${said##*: } ;;
		esac
		;;
	esac
	return 1
}

check_nfs() {
	have mount.nfs ||
		amiss "mount.nfs is missing, which mounts NFS volumes: install nfs-common (Debian, Ubuntu), nfs-utils (RHEL family) or nfs-client (SUSE)"
	has_module nfs ||
		amiss "the kernel has no module nfs: install the distribution's full kernel instead of a reduced one"
	left=$tries
	until reach; do
		left=$((left - 1))
		if [ "$left" -le 0 ]; then
			amiss "the NFS server $nfs_server cannot be reached at TCP port $port: $why"
			return
		fi
		sleep 2
	done
}

# spares_disks reports whether the multipathd that runs leaves Longhorn's disks alone: by their names, such as sdb, where a
# pattern that begins with an exclamation mark stands for all that does not match, or by their vendor, IET.
spares_disks() {
	multipathd show config 2>/dev/null | sed -n '/^blacklist {/,/^}/{
		s/^[[:space:]]*devnode "\(.*\)"[[:space:]]*$/\1/p
		s/^[[:space:]]*vendor "^\{0,1\}IET.*/^sdb/p
	}' | {
		while read -r pattern; do
			case $pattern in
			'!'*) echo sdb | grep -Eq -e "${pattern#!}" 2>/dev/null || return 0 ;;
			*) echo sdb | grep -Eq -e "$pattern" 2>/dev/null && return 0 ;;
			esac
		done
		return 1
	}
}

# check_iscsi looks for what Longhorn asks of a node (https://longhorn.io/docs/latest/deploy/install/).
check_iscsi() {
	lacks=
	for program in bash curl findmnt grep awk blkid lsblk; do
		have "$program" || lacks="$lacks $program"
	done
	[ -z "$lacks" ] ||
		amiss "these programs are missing, which Longhorn runs:$lacks; install util-linux, curl, grep, gawk and bash"
	if ! have iscsiadm; then
		amiss "iscsiadm is missing, which attaches Longhorn's volumes: install open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (RHEL family)"
	elif ! active iscsid.socket && ! active iscsid.service; then
		timeout 20 systemctl enable --now iscsid.socket >/dev/null 2>&1 ||
			timeout 20 systemctl enable --now iscsid.service >/dev/null 2>&1 ||
			amiss "iscsid does not run and cannot be started: look at systemctl status iscsid.service, and unmask it if it is masked"
	fi
	has_module iscsi_tcp ||
		amiss "the kernel has no module iscsi_tcp: install the distribution's full kernel (Debian: linux-image-amd64, Ubuntu: linux-generic, RHEL family: kernel-modules) and boot it"
	! active multipathd.service || spares_disks ||
		amiss "multipathd runs and would take Longhorn's disks: disable it (systemctl disable --now multipathd.socket multipathd.service), or put devnode \"^sd[a-z0-9]+\" into the blacklist of /etc/multipath.conf and restart it"
}

[ -z "$nfs_server" ] || check_nfs
[ -z "$iscsi" ] || check_iscsi
exit "$status"
