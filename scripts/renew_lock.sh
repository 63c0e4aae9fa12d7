#!/usr/bin/env bash
# Renews requirements.lock with uv, for every extra and every Python from 3.11, with hashes. What is
# locked already keeps its version; `--upgrade` takes new ones of everything, `--upgrade-package
# <name>` of one. `jars.lock` is renewed by scripts/fetch_jars.py --lock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# uv keeps the versions that it finds in its output file.
cp requirements.lock requirements.lock.pins
uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
  --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
  --output-file requirements.lock.pins "$@"
{
  echo "# Every package of every extra, with hashes. To renew: scripts/renew_lock.sh"
  cat requirements.lock.pins
} > requirements.lock.new
mv requirements.lock.new requirements.lock
rm requirements.lock.pins
