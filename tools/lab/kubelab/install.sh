#!/bin/sh
# The lab's installer for k3s. It takes the variables of the installer at get.k3s.io, writes the same files and ends in
# the same ways, but its releases come from the lab's mirror. SELinux, OpenRC and development builds are left out.
set -eu
set -o noglob

MIRROR='@MIRROR@'

info() { echo '[INFO] ' "$@"; }
warn() { echo '[WARN] ' "$@" >&2; }
fatal() { echo '[ERROR] ' "$@" >&2; exit 1; }

# --- what is wanted ---------------------------------------------------------------------------------------------------

verify_system() {
    [ -x /bin/systemctl ] || type systemctl >/dev/null 2>&1 || fatal 'Can not find systemd to use as a process supervisor for k3s'
}

verify_url() {
    case "${K3S_URL:-}" in
        '' | https://*) ;;
        *) fatal "Only https:// URLs are supported for K3S_URL (have ${K3S_URL})" ;;
    esac
}

# quote writes each argument as one line of ExecStart.
quote() {
    for arg in "$@"; do
        printf "\t'%s' \\\\\n" "$(printf '%s' "$arg" | sed "s/'/\\\\'/g")"
    done
}

choose_command() {
    case "${1:-}" in
        '' | -*)
            if [ -z "${K3S_URL:-}" ]; then
                CMD=server
            else
                [ -n "${K3S_TOKEN:-}${K3S_TOKEN_FILE:-}" ] ||
                    fatal "Defaulted k3s exec command to 'agent' because K3S_URL is defined, but K3S_TOKEN or K3S_TOKEN_FILE is not defined."
                CMD=agent
            fi
            ;;
        *)
            CMD=$1
            shift
            ;;
    esac
    verify_url
    EXEC_ARGS=$(quote "$@")

    if [ -n "${INSTALL_K3S_NAME:-}" ]; then
        UNIT="k3s-${INSTALL_K3S_NAME}"
    elif [ "$CMD" = server ]; then
        UNIT=k3s
    else
        UNIT="k3s-${CMD}"
    fi
    case "$UNIT" in
        *[!A-Za-z0-9_.-]*) fatal "Invalid characters for system name: ${UNIT}" ;;
    esac
}

choose_places() {
    SUDO=sudo
    [ "$(id -u)" -ne 0 ] || SUDO=
    if [ -n "${INSTALL_K3S_BIN_DIR:-}" ]; then
        BIN_DIR=$INSTALL_K3S_BIN_DIR
    else
        BIN_DIR=/usr/local/bin
        if ! $SUDO sh -c "touch ${BIN_DIR}/k3s-ro-test && rm -f ${BIN_DIR}/k3s-ro-test" 2>/dev/null; then
            [ ! -d /opt/bin ] || BIN_DIR=/opt/bin
        fi
    fi
    SYSTEMD_DIR=${INSTALL_K3S_SYSTEMD_DIR:-/etc/systemd/system}
    UNIT_FILE=${SYSTEMD_DIR}/${UNIT}.service
    ENV_FILE=${SYSTEMD_DIR}/${UNIT}.service.env
    KILLALL=${BIN_DIR}/k3s-killall.sh
    UNINSTALL=${BIN_DIR}/${UNINSTALL_NAME:-${UNIT}-uninstall.sh}
    SKIP_DOWNLOAD=${INSTALL_K3S_SKIP_DOWNLOAD:-}
    [ "${INSTALL_K3S_BIN_DIR_READ_ONLY:-}" != true ] || SKIP_DOWNLOAD=true
    TYPE=${INSTALL_K3S_TYPE:-notify}
    ARTIFACTS=${INSTALL_K3S_ARTIFACT_URL:-${MIRROR}/releases/download}
    CHANNEL=${INSTALL_K3S_CHANNEL:-stable}
    CHANNEL_URL=${INSTALL_K3S_CHANNEL_URL:-${MIRROR}/v1-release/channels}
    [ -z "${GITHUB_URL:-}" ] || warn 'GITHUB_URL is no longer used; set INSTALL_K3S_ARTIFACT_URL instead'
    case "$(uname -m)" in
        amd64 | x86_64) SUFFIX='' SUM_ARCH=amd64 ;;
        arm64 | aarch64) SUFFIX=-arm64 SUM_ARCH=arm64 ;;
        *) fatal "Unsupported architecture $(uname -m)" ;;
    esac
}

# --- the binary -------------------------------------------------------------------------------------------------------

download() { # file url
    if [ -x "$(command -v curl)" ]; then
        curl -o "$1" -sfL "$2" || fatal 'Download failed'
    elif [ -x "$(command -v wget)" ]; then
        wget -qO "$1" "$2" || fatal 'Download failed'
    else
        fatal 'Can not find curl or wget for downloading files'
    fi
}

find_version() {
    if [ -n "${INSTALL_K3S_VERSION:-}" ]; then
        VERSION=$INSTALL_K3S_VERSION
    else
        info "Finding release for channel ${CHANNEL}"
        if [ -x "$(command -v curl)" ]; then
            VERSION=$(curl -w '%{url_effective}' -L -s -S "${CHANNEL_URL}/${CHANNEL}" -o /dev/null)
        else
            VERSION=$(wget -SqO /dev/null "${CHANNEL_URL}/${CHANNEL}" 2>&1 | sed -n 's/^ *Location: *//p' | tail -n 1)
        fi
        VERSION=$(printf '%s' "${VERSION##*/}" | sed 's/%2[Bb]/+/')
        case "$VERSION" in
            v*) ;;
            *) fatal "Failed to find a release for channel ${CHANNEL}" ;;
        esac
    fi
    RELEASE_URL="${ARTIFACTS}/$(printf '%s' "$VERSION" | sed 's/+/%2B/g')"
    info "Using ${VERSION} as release"
}

hash_of() { sha256sum "$1" 2>/dev/null | cut -d ' ' -f 1; }

get_binary() {
    case "$SKIP_DOWNLOAD" in
        true | binary)
            info 'Skipping k3s download and verify'
            [ -x "${BIN_DIR}/k3s" ] || fatal "Executable k3s binary not found at ${BIN_DIR}/k3s"
            return
            ;;
    esac
    TMP=$(mktemp -d -t k3s-install.XXXXXXXXXX)
    trap 'code=$?; rm -rf "$TMP"; exit $code' EXIT
    trap 'exit 1' INT TERM
    find_version
    info "Downloading hash ${RELEASE_URL}/sha256sum-${SUM_ARCH}.txt"
    download "$TMP/sums" "${RELEASE_URL}/sha256sum-${SUM_ARCH}.txt"
    WANTED=$(grep " k3s${SUFFIX}\$" "$TMP/sums" | cut -d ' ' -f 1 || true)
    if [ -x "${BIN_DIR}/k3s" ] && [ "$(hash_of "${BIN_DIR}/k3s")" = "$WANTED" ]; then
        info 'Skipping binary downloaded, installed k3s matches hash'
        return
    fi
    info "Downloading binary ${RELEASE_URL}/k3s${SUFFIX}"
    download "$TMP/k3s" "${RELEASE_URL}/k3s${SUFFIX}"
    info 'Verifying binary download'
    GOT=$(hash_of "$TMP/k3s")
    [ "$GOT" = "$WANTED" ] || fatal "Download sha256 does not match ${WANTED}, got ${GOT}"
    chmod 755 "$TMP/k3s"
    info "Installing k3s to ${BIN_DIR}/k3s"
    $SUDO chown root:root "$TMP/k3s"
    $SUDO mv -f "$TMP/k3s" "${BIN_DIR}/k3s"
}

make_links() {
    [ "${INSTALL_K3S_BIN_DIR_READ_ONLY:-}" != true ] || return 0
    [ "${INSTALL_K3S_SYMLINK:-}" != skip ] || return 0
    for cmd in kubectl crictl ctr; do
        if [ -e "${BIN_DIR}/${cmd}" ] && [ "${INSTALL_K3S_SYMLINK:-}" != force ]; then
            info "Skipping ${BIN_DIR}/${cmd} symlink to k3s, already exists"
            continue
        fi
        found=$(command -v "$cmd" 2>/dev/null || true)
        if [ -n "$found" ] && [ "${INSTALL_K3S_SYMLINK:-}" != force ]; then
            info "Skipping ${BIN_DIR}/${cmd} symlink to k3s, command exists in PATH at ${found}"
            continue
        fi
        info "Creating ${BIN_DIR}/${cmd} symlink to k3s"
        $SUDO ln -sf k3s "${BIN_DIR}/${cmd}"
    done
}

# --- scripts for the way out ------------------------------------------------------------------------------------------

write_killall() {
    info "Creating killall script ${KILLALL}"
    $SUDO tee "$KILLALL" >/dev/null <<\KILL
#!/bin/sh
# Stops k3s and everything that it started.
[ "$(id -u)" -eq 0 ] || exec sudo "$0" "$@"
set -x
for unit in /etc/systemd/system/k3s*.service; do
    [ -s "$unit" ] && systemctl stop "$(basename "$unit")"
done
for link in flannel.1 flannel-v6.1 flannel-wg cni0; do
    ip link show "$link" >/dev/null 2>&1 && ip link delete "$link"
done
rm -rf /var/lib/cni /run/flannel /run/k3s
true
KILL
    $SUDO chmod 755 "$KILLALL"
    $SUDO chown root:root "$KILLALL"
}

write_uninstall() {
    info "Creating uninstall script ${UNINSTALL}"
    $SUDO tee "$UNINSTALL" >/dev/null <<UNINSTALL
#!/bin/sh
# Removes k3s and its data. /etc/rancher/node stays.
[ "\$(id -u)" -eq 0 ] || exec sudo "\$0" "\$@"
set -x
${KILLALL}
systemctl disable ${UNIT}
systemctl reset-failed ${UNIT}
systemctl daemon-reload
rm -f ${UNIT_FILE} ${ENV_FILE}
trap 'rm -f ${UNINSTALL}' EXIT
if ls ${SYSTEMD_DIR}/k3s*.service >/dev/null 2>&1; then
    set +x; echo 'Additional k3s services installed, skipping uninstall of k3s'; set -x
    exit
fi
for cmd in kubectl crictl ctr; do
    [ -L "${BIN_DIR}/\$cmd" ] && rm -f "${BIN_DIR}/\$cmd"
done
rm -rf /etc/rancher/k3s /run/k3s /run/flannel /var/lib/rancher/k3s /var/lib/kubelet
rm -f ${BIN_DIR}/k3s ${KILLALL}
UNINSTALL
    $SUDO chmod 755 "$UNINSTALL"
    $SUDO chown root:root "$UNINSTALL"
}

# --- the service ------------------------------------------------------------------------------------------------------

write_env() {
    info "env: Creating environment file ${ENV_FILE}"
    $SUDO touch "$ENV_FILE"
    $SUDO chmod 0600 "$ENV_FILE"
    {
        sh -c export | sed 's/^export //' | grep -E '^(K3S|CONTAINERD|KINE)_' || true
        sh -c export | sed 's/^export //' | grep -Ei '^(NO|HTTP|HTTPS)_PROXY' || true
    } | $SUDO tee "$ENV_FILE" >/dev/null
}

write_unit() {
    info "systemd: Creating service file ${UNIT_FILE}"
    $SUDO tee "$UNIT_FILE" >/dev/null <<UNITFILE
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=${TYPE}
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-${ENV_FILE}
KillMode=process
Delegate=yes
User=root
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=${BIN_DIR}/k3s \\
    ${CMD} \\
${EXEC_ARGS}

UNITFILE
    $SUDO chmod 0644 "$UNIT_FILE"
}

installed_hashes() { $SUDO sha256sum "${BIN_DIR}/k3s" "$UNIT_FILE" "$ENV_FILE" 2>&1 || true; }

start_service() {
    [ "${INSTALL_K3S_SKIP_ENABLE:-}" != true ] || return 0
    info "systemd: Enabling ${UNIT} unit"
    $SUDO systemctl enable "$UNIT_FILE" >/dev/null
    $SUDO systemctl daemon-reload >/dev/null
    [ "${INSTALL_K3S_SKIP_START:-}" != true ] || return 0
    if [ "$HASHES" = "$(installed_hashes)" ] && [ "${INSTALL_K3S_FORCE_RESTART:-}" != true ]; then
        info 'No change detected so skipping service start'
        return
    fi
    info "systemd: Starting ${UNIT}"
    $SUDO systemctl restart "$UNIT"
}

verify_system
# INSTALL_K3S_EXEC is words for the shell, as the arguments were.
eval "set -- ${INSTALL_K3S_EXEC:-} \"\$@\""
choose_command "$@"
choose_places
HASHES=$(installed_hashes)
get_binary
make_links
write_killall
write_uninstall
$SUDO systemctl disable "$UNIT" >/dev/null 2>&1 || true
$SUDO rm -f "$UNIT_FILE" "$ENV_FILE"
write_env
write_unit
start_service
