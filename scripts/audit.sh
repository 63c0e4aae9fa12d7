#!/usr/bin/env bash
# Writes build/sbom.json, the CycloneDX list of all that duesweep installs (requirements.lock and
# jars.lock), and compares the Python packages with the known vulnerabilities.
# Exits with 0 if all were compared and none is known, with 1 if some are, with 2 if the list of
# vulnerabilities is out of reach, or lacks packages: then nothing is known about these.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"
tools=$root/.cache/audit

tools_are_current() {
  cmp -s "$root/scripts/audit.lock" "$tools/audit.lock"
}

make_tools() {
  local base
  base=$(find_python) || exit
  rm -rf "$tools"
  "$base" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --requirement "$root/scripts/audit.lock"
  cp "$root/scripts/audit.lock" "$tools/audit.lock"
}

once tools_are_current make_tools
mkdir -p "$root/build"
"$tools/bin/python" "$root/scripts/build_sbom.py" "$root/build/sbom.json"
exec "$tools/bin/python" "$root/scripts/audit.py"
