#!/usr/bin/env bash
# Brings what Python's packages do not: scripts/services.sh odbc|rabbitmq ...
# What the machine has is used. Where it lacks something and has apt-get, Debian's packages are
# unpacked into .cache/services/<name>; nothing is installed, and nobody has to be root.
# The driver of SQL Server (drivers/sqlserver/dsn.py) and the tests (tests/support/services.py)
# look there. Exits with 2 if something could not be brought.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"
services=$root/.cache/services
# Only this process's: another one may be fetching, too.
fetched=$services/apt-$$
# What makes it ready (environment.sh).
preparation="$root/scripts/services.sh $*"

machine_has() {
  case $1 in
    odbc) "$python" -P -c 'import pyodbc, ctypes, sys
if sys.platform == "linux": ctypes.CDLL("libgssapi_krb5.so.2")' 2> /dev/null ;;
    # As tests/support/rabbitmq/broker_server.py looks for it.
    rabbitmq) [[ -n $(find /usr/lib/rabbitmq /opt/rabbitmq /usr/local/rabbitmq \
      -path '*/sbin/rabbitmq-server' -print -quit 2> /dev/null) ]] ;;
  esac
}

packages_of() {
  case $1 in
    odbc) echo libodbc2 libgssapi-krb5-2 ;;
    rabbitmq) echo rabbitmq-server ;;
    *) die "services.sh knows odbc and rabbitmq, not $1." ;;
  esac
}

# Libraries of another release of the system would not load.
stamp() {
  echo "$packages"
  cat /etc/os-release 2> /dev/null || uname -a
}

service_is_current() {
  [[ -e $services/$name/stamp && $(< "$services/$name/stamp") == "$(stamp)" ]]
}

unpack_service() {
  local log=$services/$name.log unfinished=$services/$name.unfinished
  if ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then
    die "$name is missing, and this machine has no apt-get to fetch it with: install what \
Debian has as $packages."
  fi
  echo "Unpacking $packages into .cache/services/$name: once." >&2
  rm -rf "$unfinished"
  mkdir -p "$unfinished" "$fetched/lists/partial" "$fetched/cache/archives/partial"
  if ! { fetch_packages && unpack_into "$unfinished"; } > "$log" 2>&1; then
    tail -n 5 "$log" >&2
    die "$name could not be unpacked: see above, and $log. Or install: $packages." 1
  fi
  stamp > "$unfinished/stamp"
  rm -rf "${services:?}/$name"
  mv "$unfinished" "$services/$name"
}

# With apt's state in folders of our own, so that neither root nor apt's locks are needed.
fetch_packages() {
  local apt=(apt-get --quiet --yes -o "Dir::State::Lists=$fetched/lists"
    -o "Dir::Cache=$fetched/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  rm -f "$fetched"/cache/archives/*.deb
  [[ -e $fetched/updated ]] || "${apt[@]}" update || return
  : > "$fetched/updated"
  # shellcheck disable=SC2086 # one word for each package
  "${apt[@]}" install --download-only --no-install-recommends --no-upgrade $packages
}

unpack_into() {
  local package erlang=$1/usr/lib/erlang
  for package in "$fetched"/cache/archives/*.deb; do
    dpkg -x "$package" "$1" || return
  done
  [[ ! -e $erlang ]] || make_movable "$erlang"
}

# Debian's erl looks for the rest of Erlang in /usr/lib/erlang, wherever it is itself.
make_movable() {
  # shellcheck disable=SC2016 # for erl to expand
  sed -i 's|ROOTDIR=/usr/lib/erlang$|ROOTDIR=$(dirname "$(dirname "$(readlink -f "$0")")")|' \
    "$1/bin/erl" && ln -sf ../../bin/erl "$1"/erts-*/bin/erl
}

once environment_is_current make_environment
trap 'rm -rf "$fetched"' EXIT
status=0
for name in "$@"; do
  packages=$(packages_of "$name") || exit
  machine_has "$name" || (once service_is_current unpack_service) || status=2
done
exit "$status"
