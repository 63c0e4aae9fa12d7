#!/usr/bin/env bash
# Writes build/sbom.json, the CycloneDX list of all that duesweep installs (requirements.lock and
# jars.lock), and compares the Python packages with the known vulnerabilities.
# Exits with 0 if all were compared and none is known, with 1 if some are, with 2 if the list of
# vulnerabilities is out of reach, or lacks packages: then nothing is known about these.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/tools.sh
source "$root/scripts/tools.sh"

prepare_tools audit
mkdir -p "$root/build"
"$tools/bin/python" "$root/scripts/build_sbom.py" "$root/build/sbom.json"
exec "$tools/bin/python" "$root/scripts/audit.py"
