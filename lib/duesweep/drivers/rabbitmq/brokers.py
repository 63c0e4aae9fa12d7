"""Where the brokers are, and how they are spoken to. A value: it travels to tasks."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pika

from duesweep.errors import ConfigError

# A peer that has said nothing for as long as this is taken for dead.
_HEARTBEAT_SECONDS = 60
_CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Brokers:
    """AMQP URLs of one cluster's nodes, tried in their order. For `amqps`, `ca_file` holds the
    authorities to trust instead of the machine's, `certificate` and `key` are the client's, all
    files of PEM; the host's name is always checked.
    """

    urls: tuple[str, ...] = field(repr=False)
    setting: str
    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None

    def parameters(self) -> Sequence[pika.connection.Parameters]:
        """What to connect with, a broker each. Raises `ConfigError` for what cannot be used."""
        return [self._parameters(url) for url in self.urls]

    def _parameters(self, url: str) -> pika.connection.Parameters:
        parts = urlsplit(url)
        if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
            raise ConfigError(
                f"{self.setting}.url is not of the form amqps://user:password@host:5671/vhost"
            )
        # Without a path pika takes "", which no broker has.
        path = url if parts.path not in {"", "/"} else parts._replace(path="/%2F").geturl()
        try:
            parameters = pika.URLParameters(path)
        except (ValueError, TypeError, AssertionError) as error:
            # Its text may quote the URL, and with it the password.
            raise ConfigError(
                f"{self.setting}.url cannot be read: {type(error).__name__}; percent-encode what "
                "the user's name, password and vhost have of : / @ ? # %"
            ) from None
        parameters.socket_timeout = parameters.stack_timeout = _CONNECT_SECONDS
        if parameters.heartbeat is None:
            parameters.heartbeat = _HEARTBEAT_SECONDS
        parameters.client_properties = {"connection_name": "duesweep"}
        if parts.scheme == "amqps":
            parameters.ssl_options = pika.SSLOptions(self._context(), parts.hostname)
        return parameters

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(f for f in (self.ca_file, self.certificate, self.key) if f)
            raise ConfigError(
                f"{self.setting}: the certificates cannot be read ({files}): {error}; check "
                "ca_file, client_certificate and client_key"
            ) from error
        return context


def shown(parameters: pika.connection.Parameters) -> str:
    """Host, port and vhost, for people."""
    return f"{parameters.host}:{parameters.port} vhost {parameters.virtual_host}"
