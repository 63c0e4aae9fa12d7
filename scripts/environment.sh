# shellcheck shell=bash
# Sourced with $root set. `need <what>` has a Python environment made, unless it is there, and sets
# $python to its Python:
#   program    .venv, with the packages that duesweep needs
#   tests      .venv, with every package of requirements.lock
#   site|audit tools of their own, .cache/<name>, from scripts/<name>.lock
# An environment has a copy of the lock that it was made from, written last: a step that was
# interrupted, or whose lock has changed since, is done again.

: "${root:?}"

need() {
  local what=$1 lock=$root/requirements.lock copy=requirements.lock folder=$root/.venv base
  if [[ $what == site || $what == audit ]]; then
    lock=$root/scripts/$what.lock copy=tools.lock folder=$root/.cache/$what
  fi
  python=$folder/bin/python
  # Any user can use a ready environment, without the right to write.
  if [[ -x $python ]]; then
    if is_same "$lock" "$folder/$copy"; then return; fi
    if [[ $what == program ]] && is_same "$lock" "$folder/program.lock"; then return; fi
  fi
  base=$(find_python) || exit
  "$base" "$root/scripts/environment.py" "$what" || exit
}

# A comment is no difference.
is_same() { cmp -s "$1" "$2" || { [[ -f $2 ]] && cmp -s <(grep -v '^#' "$1") <(grep -v '^#' "$2"); }; }

# Prints the path behind links: an environment made from `python3` breaks without a word when the
# system's python3 becomes another version, one made from python3.11 is seen to be gone.
find_python() {
  local candidate
  local new_enough='import os, sys
if sys.version_info < (3, 11): sys.exit(1)
import venv
print(os.path.realpath(sys.executable))'
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    "$candidate" -c "$new_enough" 2> /dev/null && return
  done
  echo "No Python 3.11 or newer found${PYTHON:+ as PYTHON=$PYTHON}: install it (Debian, Ubuntu: \
apt-get install python3), or name one with PYTHON=/path/to/python3." >&2
  return 2
}
