#!/usr/bin/env bash
# Installs Debian packages that this machine lacks: packages.sh FILE=PACKAGE... A FILE is a program, or a path.
set -euo pipefail

missing=()
for pair in "$@"; do
  file=${pair%%=*}
  if [[ ! -e $file ]] && ! command -v "$file" >/dev/null; then
    missing+=("${pair#*=}")
  fi
done
if ((${#missing[@]} == 0)); then
  exit 0
fi
if ((EUID != 0)); then
  echo "missing packages: ${missing[*]} (root can install them: make deps)" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}"
