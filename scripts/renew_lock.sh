#!/usr/bin/env bash
# Renews requirements.lock with uv, for every extra and every Python from 3.11, with hashes; and
# scripts/audit.lock and scripts/site.lock, the tools of scripts/audit.sh and scripts/site.sh, from
# the .in files beside them. What is locked already keeps its version; `--upgrade` takes new ones of
# everything, `--upgrade-package <name>` of one.
# `jars.lock` is renewed by scripts/fetch_jars.py --lock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# renew <lock> <its first line> <argument of uv ...>
renew() {
  local lock=$1 title=$2
  shift 2
  # uv keeps the versions that it finds in its output file.
  cp "$lock" "$lock.pins"
  uv pip compile --universal --python-version 3.11 --generate-hashes \
    --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
    --output-file "$lock.pins" "$@"
  {
    echo "$title"
    cat "$lock.pins"
  } > "$lock.new"
  mv "$lock.new" "$lock"
  rm "$lock.pins"
}

renew requirements.lock "# Every package of every extra, with hashes. To renew: scripts/renew_lock.sh" \
  pyproject.toml --all-extras "$@"
for name in audit site; do
  renew "scripts/$name.lock" "# What scripts/$name.sh runs, with hashes. To renew: scripts/renew_lock.sh" \
    "scripts/$name.in" "$@"
done
