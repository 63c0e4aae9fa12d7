#!/usr/bin/env bash
# Checks format, lint, types and imports. tests/run and the pre-commit hook call it.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

step() {
  printf '\n== %s\n' "${*#"$root/.venv/bin/"}"
  # By this Python, whatever a script's first line says: the checkout may have moved.
  "$python" "$@"
}

cd "$root"
need tests
# Who may not write into this checkout does without caches.
if [[ ! -w $root ]]; then
  export MYPY_CACHE_DIR=/dev/null RUFF_NO_CACHE=true
  without_cache=--no-cache
fi
step -m ruff format --check .
step -m ruff check .
step -m mypy
# Of this checkout, even where a worktree shares the environment of another one.
PYTHONPATH=lib step "$root/.venv/bin/lint-imports" ${without_cache:+"$without_cache"}
