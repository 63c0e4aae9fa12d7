#!/usr/bin/env bash
# Renews requirements.lock with uv: new versions of everything, for every extra and every Python from
# 3.11, with hashes. `jars.lock` is renewed by scripts/fetch_jars.py --lock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
{
  echo "# Every package of every extra, with hashes. To renew: scripts/renew_lock.sh"
  uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
    --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
} > requirements.lock.new
mv requirements.lock.new requirements.lock
