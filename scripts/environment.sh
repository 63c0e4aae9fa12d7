# shellcheck shell=bash
# Sourced by spark-submit.sh and tests/run with $root set: the Python environment, .venv.
# What is made carries a copy of the lock that it was made from, written last: a step that was
# interrupted, or whose lock has changed since, is done again.

: "${root:?}"
venv=$root/.venv
python=$venv/bin/python

die() {
  printf '%s\n' "$1" >&2
  exit "${2:-2}"
}

# Two starts at once: the second waits, and then finds the work done. What is ready is used without a
# right to write, by whatever user.
once() {
  local is_current=$1 make=$2
  "$is_current" && return
  if ! mkdir -p "$root/.cache" 2> /dev/null || ! : 2> /dev/null >> "$root/.cache/lock"; then
    die "$root is not ready, and this user may not write there: run \
${preparation:-$root/spark-submit.sh doctor} as its owner once, and let all users read what it makes."
  fi
  (
    if command -v flock > /dev/null; then flock 9; fi
    "$is_current" || "$make"
  ) 9> "$root/.cache/lock" || exit
}

environment_is_current() {
  [[ -x $python ]] && cmp -s "$root/requirements.lock" "$venv/requirements.lock"
}

make_environment() {
  local base site
  base=$(find_python) || exit
  echo "Setting up .venv from requirements.lock with $base: once, a few minutes." >&2
  rm -rf "$venv"
  "$base" -m venv "$venv" >&2 || die ".venv could not be made with $base: see above." 1
  # pip 23.0 (Debian 12) builds PySpark in an outdated way unless told not to; newer ones know.
  PIP_USE_PEP517=1 "$python" -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes --requirement "$root/requirements.lock" >&2 ||
    die "The packages of requirements.lock could not be installed: see above, then run this again." 1
  # Relative, so that a checkout can move; read by `site` when Python starts.
  if ! site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') ||
    ! echo ../../../../lib > "$site/duesweep.pth" ||
    ! cp "$root/requirements.lock" "$venv/requirements.lock"; then
    die ".venv could not be completed: see above, then run this again." 1
  fi
}

# Prints the path behind links: an environment made from `python3` breaks without a word when the
# system's python3 becomes another version, one made from python3.11 is seen to be gone.
find_python() {
  local candidate path without_venv=
  local new_enough='import os, sys
if sys.version_info < (3, 11): sys.exit(1)
print(os.path.realpath(sys.executable))'
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    path=$("$candidate" -c "$new_enough" 2> /dev/null) || continue
    if "$path" -c 'import ensurepip, venv' 2> /dev/null; then
      echo "$path"
      return
    fi
    without_venv=${without_venv:-$path}
  done
  if [[ -n $without_venv ]]; then
    die "$without_venv has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)."
  fi
  die "No Python 3.11 or newer found${PYTHON:+ as PYTHON=$PYTHON}: install it (Debian, Ubuntu: \
apt-get install python3 python3-venv), or name one with PYTHON=/path/to/python3."
}
