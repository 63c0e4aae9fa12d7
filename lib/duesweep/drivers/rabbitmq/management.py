"""A broker's management API: what AMQP does not tell."""

import json
import ssl
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from duesweep.drivers.rabbitmq.brokers import Brokers
from duesweep.errors import ConfigError, QueueError

_REFUSALS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class _NoRedirects(HTTPRedirectHandler):
    """Urllib would show the password to whatever host a redirect names."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """There is none: the answer is an error."""
        return


class NotAllowedError(ConfigError):
    """The API does not tell this user."""


class Management:
    """Questions about the vhost of `brokers`; with its user and password where `url` has none."""

    def __init__(self, url: str, brokers: Brokers) -> None:
        self._setting = f"{brokers.setting}.management_url"
        self._seconds = brokers.timeouts.driver_seconds
        amqp, parts = urlsplit(brokers.urls[0]), self._parts(url)
        user = parts if parts.username else amqp
        credentials = f"{unquote(user.username or 'guest')}:{unquote(user.password or 'guest')}"
        self._authorization = f"Basic {b64encode(credentials.encode()).decode()}"
        self._root = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._vhost = quote(unquote(amqp.path[1:]) or "/", safe="")
        context = brokers.context() if parts.scheme == "https" else ssl.create_default_context()
        # Like AMQP itself it takes no proxy, whatever the environment has for browsers.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context), _NoRedirects)

    def ask(self, path: str) -> Any:
        """What it answers; `{vhost}` in `path` stands for the vhost's name. Raises
        `NotAllowedError` where this user may not ask.
        """
        request = Request(f"{self._root}/api/{path.format(vhost=self._vhost)}")
        request.add_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=self._seconds) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise self._refusal(error) from error
        except ssl.SSLCertVerificationError as error:
            raise self._certificate(error) from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._certificate(reason) from error
            if isinstance(reason, TimeoutError):
                raise QueueError(
                    f"The management API at {self._root} has not answered for "
                    f"{self._seconds:.0f} s",
                    advice="see whether the broker is stuck, or raise timeouts.silence_seconds",
                    transient=True,
                ) from error
            raise QueueError(
                f"The management API at {self._root} cannot be reached: {reason}",
                advice=f"see that {self._setting} names it",
                transient=True,
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{self._setting}: what answers at {self._root} is no management API of RabbitMQ",
                advice="correct its host and port",
            ) from error

    def _parts(self, url: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.path
            # Read here: it is refused only when it is looked at.
            _ = parts.port
        except ValueError:
            is_url = False
        if not is_url:
            raise ConfigError(
                f"{self._setting} is not of the form https://user:password@host:15671"
            )
        return parts

    def _certificate(self, error: ssl.SSLCertVerificationError) -> ConfigError:
        return ConfigError(
            f"{self._setting}: the certificate is not trusted: {error.verify_message}",
            advice="set ca_file",
        )

    def _refusal(self, error: HTTPError) -> ConfigError | QueueError:
        text = f"{self._setting}: {self._root} answers {error.code} {error.reason}"
        if error.code in _REFUSALS:
            return NotAllowedError(
                text, advice="give this user the tag `monitoring`, and the vhost"
            )
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return QueueError(text, transient=True)
        return ConfigError(text, advice="see that the setting names the management API")
