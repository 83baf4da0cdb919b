#!/usr/bin/env bash
# Runs every test of the project and ends with the test runners' own summaries. `make check` calls it.
#
# The lab's parts, which take minutes the first time, are made in the background while the other checks run. A check that
# fails does not keep the next ones from being run, but the acceptance tests begin only when all before them passed.
set -euo pipefail
# Every background job gets a process group of its own, so that it can be ended with all its children.
set -m
cd "$(dirname "$0")/.."

lab=bin/lab
name=check
logs=$(mktemp -d)
preparing=
running=
failed=()

# finish ends a job that may be over already.
finish() {
  if [[ -n $1 ]] && kill -- "-$1" 2>/dev/null; then
    wait "$1" || echo 'stopped what was under way'
  fi
}

cleanup() {
  trap '' INT TERM
  finish "$running"
  finish "$preparing"
  if [[ -x $lab ]]; then
    "$lab" down -name "$name" >"$logs/down.log" 2>&1 || cat "$logs/down.log"
  fi
  rm -rf "$logs"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME COMMAND... runs a check, shows its output and keeps it. It waits for a job, not for a command: only so the
# shell acts on a signal at once.
step() {
  local step=$1 begin=$SECONDS result=passed
  shift
  printf '\n==> %s\n' "$step"
  "$@" 2>&1 </dev/null | tee "$logs/$step.log" &
  running=$!
  if ! wait "$running"; then
    result=FAILED
    failed+=("$step")
  fi
  running=
  printf '%-14s %s in %d s\n' "$step" "$result" $((SECONDS - begin)) | tee -a "$logs/steps"
}

# report prints all results again: they are far apart, and the runners' own lines come last.
report() {
  printf '\n==> results\n'
  cat "$logs/steps"
  local log
  for log in "$logs"/{unit,race,double,libvirt,acceptance}.log; do
    if [[ -f $log ]]; then
      awk '/^(--- |ok|FAIL|panic:)/' "$log"
    fi
  done
}

step packages make deps-test
# shellcheck disable=SC2086 # a list of flags
nice -n 5 "$lab" prepare $LAB_FLAGS >"$logs/prepare.log" 2>&1 </dev/null &
preparing=$!

step build make build
step lint make lint
step unit make test
step race make race
step verify make verify

printf '\n==> waiting for the lab\n'
if ! wait "$preparing"; then
  failed+=(lab)
fi
preparing=
cat "$logs/prepare.log"

if ((${#failed[@]} == 0)); then
  step lint-lab make lint-controlplane
  step double make testdouble
  step libvirt make testlibvirt NAME="$name"
  step acceptance make testacc NAME="$name"
fi
report
((${#failed[@]} == 0))
