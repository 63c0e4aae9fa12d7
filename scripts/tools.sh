# shellcheck shell=bash
# Sourced, with $root set, by scripts that need tools which duesweep itself does not: a Python environment of
# their own, .cache/<name>, from scripts/<name>.lock.

: "${root:?}"
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

# prepare_tools <name> : sets $tools
prepare_tools() {
  tools_lock=$root/scripts/$1.lock
  tools=$root/.cache/$1
  once tools_are_current make_tools
}

tools_are_current() {
  cmp -s "$tools_lock" "$tools/tools.lock"
}

make_tools() {
  local base
  base=$(find_python) || exit
  rm -rf "$tools"
  "$base" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --requirement "$tools_lock"
  cp "$tools_lock" "$tools/tools.lock"
}
