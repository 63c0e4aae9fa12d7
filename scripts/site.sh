#!/usr/bin/env bash
# Builds the documentation as a site, build/site/index.html; a link that leads nowhere is an error.
# `scripts/site.sh serve` shows it at http://127.0.0.1:8000, and again whenever a page is changed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

need site
# Its notice that Material for MkDocs gets security updates until 2027-05-05. The successor, Zensical, is
# a pre-release in November 2026 (0.0.73), and reads mkdocs.yml.
export NO_MKDOCS_2_WARNING=1
cd "$root"
exec "$python" -m mkdocs --quiet "${@-build}"
