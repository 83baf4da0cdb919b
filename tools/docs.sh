#!/usr/bin/env bash
# Makes docs/ from the provider's schemas, templates/ and examples/, without a registry.
#
#   tools/docs.sh write   replaces docs/
#   tools/docs.sh diff    shows what `write` would change, and fails if that is anything
#
# `make generate` and `make verify` call it, with the built provider in bin/ and its CLI configuration beside it.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/config" "$work/provider"
cat >"$work/config/main.tf" <<'HCL'
terraform {
  required_providers {
    cockpit = { source = "cockpit-k3s/cockpit" }
  }
}
HCL
# tfplugindocs looks the provider up under its short name, whatever its address.
TF_CLI_CONFIG_FILE=$PWD/bin/dev.tfrc "$TERRAFORM" -chdir="$work/config" providers schema -json |
  sed -E 's,"registry\.[a-z.]+/cockpit-k3s/cockpit":,"cockpit":,' >"$work/schema.json"

cp -r examples templates "$work/provider"
"$COCKPIT_LAB_CACHE/bin/tfplugindocs" generate --provider-name cockpit --provider-dir "$work/provider" \
  --providers-schema "$work/schema.json"

case ${1:-} in
write)
  rm -rf docs
  cp -r "$work/provider/docs" docs
  ;;
diff)
  if ! diff -ru docs "$work/provider/docs"; then
    echo 'docs/ is not what the sources make of it; run "make generate".' >&2
    exit 1
  fi
  ;;
*)
  echo "usage: $0 write|diff" >&2
  exit 2
  ;;
esac
