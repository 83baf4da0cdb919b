#!/usr/bin/env bash
# Shows the main job: examples/quickstart applied in a lab on this machine. `make demo` and `make demo-down` call it.
#
#   tools/demo.sh up     makes the lab "demo" where there is none, applies, and lists the cluster's nodes
#   tools/demo.sh down   destroys the cluster, then the lab
set -euo pipefail
cd "$(dirname "$0")/.."

lab=bin/lab
name=demo
dir=demo
inside=("$lab" exec -name "$name" --)
program=$(basename "$TERRAFORM")
tf=("${inside[@]}" "$TERRAFORM" "-chdir=$dir")
export CHECKPOINT_DISABLE=1
# A configuration that does not exist makes every command print a warning.
if [[ ! -e ${TF_CLI_CONFIG_FILE:-} ]]; then
  unset TF_CLI_CONFIG_FILE
fi

if [[ ! -t 1 ]]; then
  export TF_CLI_ARGS=-no-color
fi

stands() { "$lab" env -name "$name" >/dev/null 2>&1; }

say() { printf '\n==> %s\n' "$*"; }

# configure writes the demo's configuration: the example as it is, and variables that fit the lab.
configure() {
  local LIBVIRT_DEFAULT_URI LAB_TEMPLATE_POOL LAB_TEMPLATE_VOLUME LAB_INSTALL_SCRIPT_URL LAB_NETWORK LAB_POOL
  eval "$("$lab" env -name "$name")"
  # The newest release that the mirror has, as the k3s install script itself would find it.
  local version
  version=$("${inside[@]}" curl -fsS -o /dev/null -w '%{redirect_url}' "$LAB_MIRROR_URL/v1-release/channels/latest")
  version=${version##*/}
  mkdir -p "$dir"
  cp examples/quickstart/*.tf "$dir/"
  # A provider built anew has another checksum than the one that was locked.
  rm -f "$dir/.terraform.lock.hcl"
  cat >"$dir/terraform.tfvars" <<HCL
name               = "demo"
k3s_version        = "${version/\%2B/+}"
hypervisor_uri     = "$LIBVIRT_DEFAULT_URI"
template           = { pool = "$LAB_TEMPLATE_POOL", volume = "$LAB_TEMPLATE_VOLUME" }
network            = "$LAB_NETWORK"
install_script_url = "$LAB_INSTALL_SCRIPT_URL"
server             = { vcpus = 2, memory_gib = 2, disk_gib = 8, storage_pool = "$LAB_POOL" }
worker             = { vcpus = 1, memory_gib = 1, disk_gib = 8, storage_pool = "$LAB_POOL" }
HCL
}

up() {
  if stands; then
    say "the lab \"$name\" stands already"
  else
    say "making the lab \"$name\": a hypervisor, a golden image, and a mirror of k3s"
    rm -rf "$dir"
    "$lab" up -name "$name"
  fi
  configure
  say "$program init"
  "${tf[@]}" init -input=false
  say "$program apply: one server and two workers"
  local begin=$SECONDS
  "${tf[@]}" apply -input=false -auto-approve
  say "the apply took $((SECONDS - begin)) s; the cluster's nodes through the exported kubeconfig:"
  (umask 077 && "${tf[@]}" output -raw kubeconfig >"$dir/kubeconfig.yaml")
  "${inside[@]}" kubectl --kubeconfig "$dir/kubeconfig.yaml" get nodes -o wide
  cat <<TEXT

Look around (the VMs can be reached from inside the lab only):
  ${inside[*]} kubectl --kubeconfig $dir/kubeconfig.yaml get pods -A
  ${inside[*]} virsh list
  ${inside[*]} $TERRAFORM -chdir=$dir apply -var workers=3
  $lab console -name $name demo-cp-1
Take it down:
  make demo-down
TEXT
}

down() {
  local destroyed=0
  if stands && [[ -s $dir/terraform.tfstate ]]; then
    say "$program destroy"
    "${tf[@]}" destroy -input=false -auto-approve || destroyed=$?
  fi
  say "removing the lab \"$name\""
  "$lab" down -name "$name"
  rm -rf "$dir"
  return "$destroyed"
}

case ${1:-} in
up) up ;;
down) down ;;
*)
  echo "usage: $0 up|down" >&2
  exit 2
  ;;
esac
