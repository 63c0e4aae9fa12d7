# shellcheck shell=bash
# Sourced by tests/run: RabbitMQ, of which the tests start nodes of their own, and openssl, which
# makes their certificates.

has_broker() {
  # As tests/support/rabbitmq/broker_server.py looks for it.
  [[ -n $(find /usr/lib/rabbitmq /opt/rabbitmq /usr/local/rabbitmq -path '*/sbin/rabbitmq-server' \
    -print -quit 2> /dev/null) ]] && command -v openssl > /dev/null
}

# Installs it where that is possible; without it its tests are skipped, and fail on CI.
bring_broker() {
  local output
  has_broker && return
  if [[ $(id -u) != 0 ]] || ! command -v apt-get > /dev/null; then
    echo "RabbitMQ's tests need rabbitmq-server and openssl: install them (docs/testing.md)." >&2
  elif output=$(install_broker 2>&1); then
    echo "Installed rabbitmq-server for the tests; no broker was started." >&2
  else
    echo "rabbitmq-server could not be installed: ${output##*$'\n'}" >&2
  fi
}

# The package would start a broker of its own, on the standard ports, and at every boot.
install_broker() (
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy" || exit
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update --quiet &&
    apt-get install --yes --quiet --no-install-recommends rabbitmq-server openssl || exit
  # In a container there is nothing to disable.
  systemctl --quiet disable rabbitmq-server || true
)
