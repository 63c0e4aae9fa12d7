#!/usr/bin/env bash
# Runs tests with another Python, or with the lowest versions that pyproject.toml allows:
#   scripts/try_versions.sh <python> locked|lowest [test ...]        by default tests/unit
# Needs uv. JAVA_HOME names Java. Environments are in .cache/try, and are made again each time.
set -euo pipefail
base=${1:?the Python to try, such as python3.13} versions=${2:?locked or lowest}
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
try=.cache/try
rm -rf "$try"
mkdir -p "$try"

uv venv --quiet --python "$base" "$try/venv"
if [[ $versions == lowest ]]; then
  uv pip compile --quiet --resolution lowest-direct --python "$try/venv/bin/python" --all-extras \
    --no-header --no-annotate --output-file "$try/lowest.txt" pyproject.toml
  uv pip install --quiet --python "$try/venv/bin/python" --requirement "$try/lowest.txt"
else
  uv pip install --quiet --python "$try/venv/bin/python" --require-hashes --requirement requirements.lock
fi
export DUESWEEP_JARS=$PWD/.cache/jars SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=lib
exec "$try/venv/bin/python" -m pytest -q -p no:cacheprovider "${@:-tests/unit}"
