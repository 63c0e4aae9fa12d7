"""The management API of a broker, for facts that AMQP does not have.

It uses the standard library: see docs/decisions/libraries.md.
"""

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

from duesweep.core.errors import ConfigError, QueueError
from duesweep.drivers.dsn import DsnError
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.urls import check_http

_REFUSALS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class _NoRedirects(HTTPRedirectHandler):
    """urllib would send the password to whatever host a redirect names."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse: a redirect counts as an error."""
        return


class NotAllowedError(ConfigError):
    """This user may not ask this question."""

    stored_name = "duesweep.drivers.rabbitmq.management.NotAllowedError"


class Management:
    """Questions about the vhost of `brokers`. If `url` has no user and password, the first
    broker's are used.
    """

    def __init__(self, url: str, brokers: Brokers) -> None:
        self._setting = f"{brokers.setting}.management_url"
        self._seconds = brokers.timeouts.driver_seconds
        amqp, parts = urlsplit(brokers.urls[0]), self._split_url(url)
        user = parts if parts.username else amqp
        credentials = f"{unquote(user.username or 'guest')}:{unquote(user.password or 'guest')}"
        self._authorization = f"Basic {b64encode(credentials.encode()).decode()}"
        self._root = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._vhost = quote(unquote(amqp.path[1:]) or "/", safe="")
        context = brokers.context() if parts.scheme == "https" else ssl.create_default_context()
        # No proxy, like AMQP: the environment's proxies are for browsers.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context), _NoRedirects)

    def ask(self, path: str) -> Any:
        """The parsed answer. `{vhost}` in `path` stands for the vhost's name.

        Raises `NotAllowedError` if this user may not ask, `QueueError` if there is no answer, and
        another `ConfigError` if the URL is wrong.
        """
        request = Request(f"{self._root}/api/{path.format(vhost=self._vhost)}")
        request.add_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=self._seconds) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise self._refusal_error(error) from error
        except ssl.SSLCertVerificationError as error:
            raise self._certificate_error(error) from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._certificate_error(reason) from error
            if isinstance(reason, TimeoutError):
                raise QueueError(
                    f"The management API at {self._root} has not answered for "
                    f"{self._seconds:.0f} s",
                    advice="check whether the broker is stuck, or raise timeouts.silence_seconds",
                    transient=True,
                ) from error
            raise QueueError(
                f"The management API at {self._root} cannot be reached: {reason}",
                advice=f"check {self._setting}",
                transient=True,
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{self._setting}: {self._root} is not a management API of RabbitMQ",
                advice="correct its host and port",
            ) from error

    def _split_url(self, url: str) -> SplitResult:
        try:
            check_http(url)
        except DsnError as error:
            raise ConfigError(
                f"{self._setting} is wrong: {error.problem.text}",
                advice="write it as https://user:password@host:15671",
            ) from None
        return urlsplit(url)

    def _certificate_error(self, error: ssl.SSLCertVerificationError) -> ConfigError:
        return ConfigError(
            f"{self._setting}: the certificate is not trusted: {error.verify_message}",
            advice="set ca_file",
        )

    def _refusal_error(self, error: HTTPError) -> ConfigError | QueueError:
        text = f"{self._setting}: {self._root} answers {error.code} {error.reason}"
        if error.code in _REFUSALS:
            return NotAllowedError(
                text, advice="give this user the tag `monitoring`, and rights in the vhost"
            )
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return QueueError(text, transient=True)
        return ConfigError(text, advice="check that the setting is the URL of the management API")
