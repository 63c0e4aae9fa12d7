"""URLs of brokers and of services over HTTP. A URL of a broker may be a connection string of
NServiceBus, whose grammar is .NET's: see dsn.py.

https://docs.particular.net/transports/rabbitmq/connection-settings
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from duesweep.drivers.dsn import (
    DsnError,
    Keywords,
    Value,
    check_host,
    check_port,
    choice,
    decoded,
    host_and_port,
    net_pairs,
)

_AMQP = re.compile(r"\s*amqps?:", re.IGNORECASE)
# They separate options in this grammar or in another one.
_SEPARATORS = re.compile(r"[;=\s]")
_HOW_TO_AMQP = (
    "write it as amqps://user:password@host:5671/vhost, with each of : / @ ? # % [ ] in a part "
    "percent-encoded, or as host=...;username=...;password=..."
)
_HOW_TO_HTTP = "write it as https://user:password@host:port, without options"
# NServiceBus.RabbitMQ's, and ServiceControl's in the same text.
_TRANSLATED = {
    *("host", "port", "virtualhost", "username", "password", "usetls", "requestedheartbeat"),
}
_UNUSED = {
    *("RetryDelay", "PrefetchCount", "UsePublisherConfirms", "DequeueTimeout"),
    *("MaxWaitTimeForConfirms", "ValidateDeliveryLimits", "QueueLengthQueryDelayInterval"),
}
_REFUSED = {
    **dict.fromkeys(
        ("CertPath", "CertPassphrase"),
        "remove it, and set client_certificate and client_key to files in PEM",
    ),
    **dict.fromkeys(
        ("ManagementApiUrl", "ManagementApiUserName", "ManagementApiPassword"),
        "remove it, and set management_url",
    ),
    **dict.fromkeys(
        ("DisableRemoteCertificateValidation", "UseExternalAuthMechanism", "DisableManagementApi"),
        "remove it",
    ),
}
# The options of a URL that pika knows; others would be ignored.
_OPTIONS = {
    *("blocked_connection_timeout", "channel_max", "client_properties", "connection_attempts"),
    *("frame_max", "heartbeat", "locale", "retry_delay", "socket_timeout", "stack_timeout"),
    *("tcp_options", "backpressure_detection"),
}
_KEYWORDS = Keywords.of(_TRANSLATED, _UNUSED, _REFUSED)


def for_pika(text: str) -> str:
    """The AMQP URL of a broker. NServiceBus's pairs, as `host=...;username=...`, are translated.

    Raises `DsnError` for another text, and for a URL with such pairs in it.
    """
    if _AMQP.match(text):
        scheme, _, rest = text.strip().partition(":")
        text = f"{scheme.lower()}:{rest}"
    else:
        text = _amqp_url(net_pairs(text) or ())
    try:
        parts = urlsplit(text)
        options = {option.partition("=")[0] for option in parts.query.split("&") if option}
        names = {"user": parts.username, "host": parts.hostname, "vhost": parts.path[1:]}
    except ValueError:
        raise DsnError("it cannot be read", _HOW_TO_AMQP) from None
    _check_port(parts.netloc)
    for name, written in names.items():
        value = decoded(written or "")
        if value.is_misread() or re.search(r"\s", value.bare):
            raise DsnError(f"its {name} holds ; or = or white space", _HOW_TO_AMQP)
    if "ssl_options" in options:
        # pika would take them, and with them leave out checks.
        raise DsnError(
            "it has ssl_options, which are not used",
            "write amqps://, and set ca_file, client_certificate and client_key",
        )
    if not options <= _OPTIONS:
        raise DsnError("it has an option after ? that is unknown", "remove it")
    if not parts.hostname or "@" in parts.path + parts.query + parts.fragment:
        # The host is then the beginning of the password, and messages would show it.
        raise DsnError("it names no host, or has an @ after the host", _HOW_TO_AMQP)
    if "/" in parts.path[1:].rstrip("/"):
        # pika would take the part before the slash.
        raise DsnError("its vhost holds a slash", _HOW_TO_AMQP)
    check_host(parts.hostname)
    return text


def _amqp_url(pairs: Iterable[tuple[str, Value]]) -> str:
    found: dict[str, str] = {}
    for number, (key, value) in enumerate(pairs, 1):
        name = _KEYWORDS.name(number, (key, value))
        if name in {"username", "virtualhost"} and value.is_misread():
            raise DsnError(f"its {name} holds =", _HOW_TO_AMQP)
        found[name] = value.text
    if not found.get("host"):
        raise DsnError("it is no AMQP URL, and names no host", _HOW_TO_AMQP)
    is_encrypted = choice("useTls", found.get("usetls") or "false", ("true", "false")) == "true"
    host, port = host_and_port(found["host"], found.get("port", ""))
    check_host(host)
    login = ":".join(
        quote(found.get(name) or "guest", safe="") for name in ("username", "password")
    )
    host = f"[{host}]" if ":" in host else host
    port = port or ("5671" if is_encrypted else "5672")
    vhost = quote(found.get("virtualhost") or "/", safe="")
    heartbeat = found.get("requestedheartbeat", "")
    if heartbeat and not heartbeat.isdecimal():
        raise DsnError("its RequestedHeartbeat is no number of seconds", "correct it")
    query = f"?heartbeat={heartbeat}" if heartbeat else ""
    return f"amqp{'s' * is_encrypted}://{login}@{host}:{port}/{vhost}{query}"


def check_http(url: str) -> None:
    """Raise `DsnError` unless it is the URL of a service, without options: errors show its host and
    path.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url:
        raise DsnError("it must begin with http:// or https://, and name a host", _HOW_TO_HTTP)
    _check_port(parts.netloc)
    check_host(parts.hostname or "")
    if "@" in parts.path or _SEPARATORS.search(parts.path) or parts.query or parts.fragment:
        raise DsnError("its path holds @ or ; or = or white space, or it has options", _HOW_TO_HTTP)


def _check_port(login_and_host: str) -> None:
    """Raise `DsnError` for the port of a URL that no server has."""
    _, colon, port = login_and_host.rpartition("@")[2].rpartition(":")
    # Else the colon is inside the brackets of an IPv6 address.
    if colon and "]" not in port:
        check_port(port)
