#!/usr/bin/env bash
# The command `duesweep` of a checkout: makes its Python environment, once, and runs it.
# `./spark-submit.sh --help` lists the commands, `./spark-submit.sh sweep --help` the options of one.
#
# Options of Spark's spark-submit may stand anywhere: --master (default $MASTER, else local[*,4]),
# --conf key=value, --driver-memory, --executor-memory, --total-executor-cores, --jars, --packages,
# --properties-file (instead of conf/spark-defaults.conf), and the like. Python takes them, and makes
# Spark ready for a command: lib/duesweep/drivers/spark_start.py.
set -euo pipefail

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"

# One document on stdout, whatever happens: Python's own documents come later.
tell_failure() {
  local status=$?
  ((status == 0)) || printf '{"outcome": "error", "exit_code": %d, "error": "%s"}\n' "$status" \
    "What the command needs could not be made ready; stderr says why"
}
if [[ " $* " =~ " "(sweep|handover)" " && " $* " == *" --json "* ]]; then trap tell_failure EXIT; fi
need program
exec "$python" -P -m duesweep "$@"
