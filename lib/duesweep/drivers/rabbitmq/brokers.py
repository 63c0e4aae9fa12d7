"""Which brokers to connect to, and how. A value that Spark sends to tasks."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pika

from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.errors import ConfigError

# A peer that sends nothing for this long counts as dead.
_HEARTBEAT_SECONDS = 60
_LONGEST_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """The AMQP URLs of one cluster's nodes, tried in this order.

    For `amqps`: `ca_file` has the authorities to trust instead of the machine's; `certificate` and
    `key` are the client's. All three are PEM files. The host's name is always checked.
    """

    urls: tuple[str, ...] = field(repr=False)
    setting: str
    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    def parameters(self) -> Sequence[pika.connection.Parameters]:
        """pika's parameters for each broker. Raises `ConfigError` for a URL that cannot be used."""
        is_any_encrypted = any(url.startswith("amqps:") for url in self.urls)
        # Only once, because reading the machine's authorities takes time.
        context = self.context() if is_any_encrypted else None
        return [self._parameters(url, context) for url in self.urls]

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises `ConfigError` for certificate files that cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate:
                # Without a password, OpenSSL would ask on the terminal for an encrypted key's.
                context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(f for f in (self.ca_file, self.certificate, self.key) if f)
            raise ConfigError(
                f"{self.setting}: the certificates cannot be read ({files}): {error}",
                advice="check ca_file, client_certificate and client_key",
            ) from error
        return context

    def _parameters(self, url: str, context: ssl.SSLContext | None) -> pika.connection.Parameters:
        try:
            parts = urlsplit(url)
            self._refuse_ssl_options(parts.query)
            if parts.username and parts.password is None:
                variable = f"DUESWEEP_{self.setting.upper().replace('.', '__')}__URL"
                raise ConfigError(
                    f"{self.setting}.url has a user and no password",
                    advice=f"give it in the environment: {variable}=amqps://user:password@host/...",
                )
            # Without a path pika takes the vhost "", which no broker has.
            path = url if parts.path not in {"", "/"} else parts._replace(path="/%2F").geturl()
            parameters = pika.URLParameters(path)
        except (ValueError, TypeError, AssertionError, KeyError) as error:
            raise self._url_error(type(error).__name__) from None
        if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
            raise ConfigError(
                f"{self.setting}.url is not of the form amqps://user:password@host:5671/vhost"
            )
        if "@" in parts.path + parts.query + parts.fragment:
            # The host is then the beginning of the password, and messages would show it.
            raise self._url_error("an @ after the host")
        longest = min(_LONGEST_CONNECT_SECONDS, self.timeouts.connect_seconds)
        parameters.socket_timeout = parameters.stack_timeout = longest
        if parameters.heartbeat is None:
            parameters.heartbeat = _HEARTBEAT_SECONDS
        parameters.client_properties = {"connection_name": "duesweep"}
        if parts.scheme == "amqps":
            parameters.ssl_options = pika.SSLOptions(context or self.context(), parts.hostname)
        return parameters

    def _refuse_ssl_options(self, query: str) -> None:
        # pika would take them, and with them leave out checks.
        if "ssl_options" in parse_qs(query):
            raise ConfigError(
                f"{self.setting}.url has ssl_options, which are not used",
                advice="write amqps://, and set ca_file, client_certificate and client_key",
            )

    def _url_error(self, reason: str) -> ConfigError:
        # An error's own text may quote the URL, and with it the password.
        return ConfigError(
            f"{self.setting}.url cannot be read: {reason}",
            advice=(
                "percent-encode each of : / @ ? # % [ ] in the user's name, password and vhost"
            ),
        )


def describe_broker(parameters: pika.connection.Parameters) -> str:
    """Host, port and vhost, for messages."""
    return f"{parameters.host}:{parameters.port} vhost {parameters.virtual_host}"
