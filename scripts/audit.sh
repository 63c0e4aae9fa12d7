#!/usr/bin/env bash
# Lists what duesweep installs, and compares it with the known vulnerabilities: scripts/audit.py.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

need audit
exec "$python" "$root/scripts/audit.py"
