#!/bin/sh
# Installs k3s in a new VM and starts it. cloud-init runs this once, as root; running it again does no harm.
#
# How far it has come stands in a marker file, which is replaced as a whole at every step and always tells the end:
#   {"instance":"<id of the VM>","state":"running|waiting|done|failed","step":"<name>","rc":<exit status>}
# A step that failed may add "message":"<lines for people>".
# "waiting" means that all is prepared, and that the file named turn begins the rest. "done" means that k3s was installed and its start was ordered: k3s itself may need minutes more.
#
# Its only argument is for tests: a directory to take for the root of the file system.
set -u
umask 077
PATH=$PATH:/usr/local/bin:/opt/bin

root=${1:-}
# Sets INSTANCE, ROLE, UNIT, VERSION, INSTALL_SCRIPT_URL, RETRY_SECONDS, TURN_SECONDS, NFS_SERVER, NFS_TRIES and ISCSI; without
# them nobody could be told anything.
# shellcheck source=/dev/null
. "$root/etc/cockpit/bootstrap.env" || exit 1

state_dir=$root/var/lib/cockpit
marker=$state_dir/bootstrap.json
script=$state_dir/install.sh
log=$root/var/log/cockpit-bootstrap.log
step=begin
message=

# What is said goes to the log, and to where cloud-init sends output: its own log and the VM's console.
say() {
	echo "cockpit-bootstrap: $*"
	echo "cockpit-bootstrap: $*" >&3
}

# mark STATE RC replaces the marker.
mark() {
	printf '{"instance":"%s","state":"%s","step":"%s","rc":%d%s}\n' "$INSTANCE" "$1" "$step" "$2" "$message" >"$marker.new" &&
		mv "$marker.new" "$marker"
}

# fail RC ends the bootstrap.
fail() {
	trap '' HUP INT TERM
	mark failed "$1"
	say "step $step failed with status $1"
	exit "$1"
}

# run STEP COMMAND... runs a command as the named step.
run() {
	step=$1
	shift
	mark running 0 || fail $?
	say "step $step"
	"$@" || fail $?
}

# now prints the seconds since the VM's start, which unlike the time of day do not jump when the clock is set.
now() {
	read -r seconds _ <"$root/proc/uptime"
	echo "${seconds%.*}"
}

# retry COMMAND... runs a command until it succeeds, with pauses of 2 to 30 seconds. No attempt begins after the
# deadline, which the steps share, or after status 127: no wait brings a program that the image lacks.
retry() {
	pause=2
	until "$@"; do
		rc=$?
		[ "$rc" -ne 127 ] && [ $(($(now) + pause)) -lt "$deadline" ] || return "$rc"
		say "step $step: status $rc, next attempt in $pause s"
		sleep "$pause"
		pause=$((pause * 2))
		[ "$pause" -le 30 ] || pause=30
	done
}

# kubelet refuses to run on cgroup v1 from Kubernetes 1.35 on.
check_cgroup() {
	case $VERSION in v1.[0-9].* | v1.[12][0-9].* | v1.3[0-4].*) return ;; esac
	[ -e "$root/sys/fs/cgroup/cgroup.controllers" ] && return
	say "the image boots with cgroup v1, and k3s $VERSION needs v2"
	return 1
}

# What is amiss in the VM itself is told before minutes go by and a node is half there.
check_storage() {
	[ -n "$NFS_SERVER$ISCSI" ] || return 0
	troubles=$(PREFLIGHT_ROOT=$root sh "$state_dir/preflight.sh" "$NFS_TRIES" "$NFS_SERVER" "$ISCSI") && return
	rc=$?
	say "$troubles"
	message=,\"message\":\"$(printf '%s\n' "$troubles" | tr -d '\001-\011\013-\037' | sed 's/[\\"]/\\&/g; $!s/$/\\n/' | tr -d '\n')\"
	return "$rc"
}

download() {
	rm -f "$script"
	if command -v curl >/dev/null; then
		curl -fsSL --connect-timeout 10 --max-time 60 -o "$script" "$INSTALL_SCRIPT_URL" || return
	elif command -v wget >/dev/null; then
		wget -q -T 60 -O "$script" "$INSTALL_SCRIPT_URL" || return
	else
		say "the image has neither curl nor wget"
		return 127
	fi
	# A proxy or a captive portal may answer with a page of its own.
	first=
	read -r first <"$script"
	case $first in
	'#!'*sh*) ;;
	*)
		say "what was downloaded is empty or no shell script"
		return 65
		;;
	esac
}

# The configuration stands in config.yaml, so that the script gets no K3S_ variable: it would write those to the unit's
# environment. It must not start the unit either: that would wait without limit for a cluster that does not answer.
install_k3s() (
	umask 022
	INSTALL_K3S_VERSION=$VERSION INSTALL_K3S_EXEC=$ROLE INSTALL_K3S_SKIP_START=true timeout 900 sh "$script"
)

check_version() {
	found=$(k3s --version) || return
	# k3s version v1.36.2+k3s1 (469d009f)
	found=$(printf '%s\n' "$found" | sed -n 's/^k3s version \([^ ]*\).*/\1/p')
	[ "$found" = "$VERSION" ] && return
	say "k3s $VERSION was asked for, and ${found:-no version} is installed"
	return 1
}

# A node that must not join before others have is installed meanwhile, and gets its configuration with its turn.
await_turn() {
	[ "$TURN_SECONDS" -gt 0 ] || return 0
	mark waiting 0 || return
	last=$(($(now) + TURN_SECONDS))
	until [ -e "$state_dir/turn" ]; do
		[ "$(now)" -lt "$last" ] || return 124
		sleep 1
	done
	mark running 0
}

# A VM whose power is cut later, when the file system has written nothing yet, would boot with empty files.
start_unit() {
	sync
	systemctl daemon-reload && systemctl start --no-block "$UNIT"
}

mkdir -p "$state_dir" "${log%/*}" || exit
exec 3>&1 >>"$log" 2>&1 || exit
trap 'fail 129' HUP
trap 'fail 130' INT
trap 'fail 143' TERM

run cgroup check_cgroup
run preflight check_storage
deadline=$(($(now) + RETRY_SECONDS))
run download retry download
run install retry install_k3s
run version check_version
run turn await_turn
run start start_unit
mark "done" 0 || fail $?
say "done"
