"""The wire to PostgreSQL: a connection with a limit on each wait; the TLS that it asked for, also
for JDBC as far as its driver knows it; new ids, and arrays of UUIDs in their binary format; and
instants outside of Python's years.

The server's own time-outs do not help if its answer never arrives. Keep-alives do not help if the
peer's kernel still acknowledges. So each wait for the server also has a limit here.

https://www.postgresql.org/docs/current/libpq-ssl.html and
https://jdbc.postgresql.org/documentation/ssl,
https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES; an array's
binary format is the input of `array_recv`.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg import generators, pq, waiting
from psycopg.adapt import Buffer, Dumper
from psycopg.postgres import types
from psycopg.pq import Format, PipelineStatus, PollingStatus, TransactionStatus
from psycopg.types import TypeInfo

from duesweep.core.errors import ConfigError
from duesweep.core.world import instant_of
from duesweep.drivers.dsn import OF_THE_MACHINE
from duesweep.drivers.postgresql.errors import SilenceError

_T = TypeVar("_T")
_JDBC_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
_REVOKED = ("sslcrl", "sslcrldir")
# The file of authorities that libpq takes where the dsn names none.
_AUTHORITIES = Path("~/.postgresql/root.crt")
_ASKED_FOR = {"require", "verify-ca", "verify-full"}
_AT_REST = {TransactionStatus.IDLE, TransactionStatus.INTRANS}
# The calendar repeats after 400 years.
_CYCLE_YEARS, _CYCLE_US = 400, 146_097 * 86_400_000_000
_MACHINES_FACTORY = "org.postgresql.ssl.DefaultJavaSSLFactory"

# PGVerbosity of libpq-fe.h.
_DEFAULT, _VERBOSE = 1, 2
_WAITS: Mapping[int, waiting.Wait] = {
    PollingStatus.READING: waiting.Wait.R,
    PollingStatus.WRITING: waiting.Wait.W,
}
_IDS_AT_ONCE = 256

# Of an array: its dimensions, and that it has no NULLs.
_ONE_DIMENSION, _EMPTY = f"{1:08x}{0:08x}", f"{0:08x}{0:08x}"
_FIRST_INDEX = f"{1:08x}"

try:
    # The libpq that psycopg itself uses, which has no way to call this.
    _set_verbosity: Callable[[object, int], object] = ctypes.CDLL(
        sys.modules[pq.PGconn.__module__].__file__
    ).PQsetErrorVerbosity
except (OSError, AttributeError):

    def _set_verbosity(_: object, __: int) -> None:
        """Errors stay as they are."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises and closes when the server has not sent or taken a byte for `answer_seconds`. After
    an idle time longer than `ping_seconds` it first sends an empty query, and waits at most
    `ping_seconds` for the answer.
    """

    answer_seconds: float
    ping_seconds: float
    _used = 0.0

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> Generator[Any, Any, Self]:
        """As psycopg's own, but errors have the SQLSTATE of the server's refusal: libpq shows it
        only if it is verbose.
        """
        connection: Any = pq.PGconn.connect_start(conninfo.encode())
        _set_verbosity(ctypes.c_void_p(connection.pgconn_ptr), _VERBOSE)
        while (status := connection.connect_poll()) in _WAITS:
            while not (yield connection.socket, _WAITS[status]):
                pass
        if status != PollingStatus.OK:
            text = connection.get_error_message()
            connection.finish()
            raise psycopg.OperationalError(f"connection failed: {text}")
        _set_verbosity(ctypes.c_void_p(connection.pgconn_ptr), _DEFAULT)
        connection.nonblocking = 1
        return cls(connection)

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **options: Any) -> _T:
        """Run one exchange with the server. psycopg calls this for all that it does."""
        idle_seconds = monotonic() - self._used
        if self._used and idle_seconds > self.ping_seconds:
            self._ping()
        value = super().wait(self._limit_wait(gen, self.answer_seconds), *args, **options)
        self._used = monotonic()
        return value

    def _ping(self) -> None:
        # Not during a COPY or a pipeline, which consist of several exchanges.
        at_rest = self.pgconn.transaction_status in _AT_REST
        if at_rest and self.pgconn.pipeline_status == PipelineStatus.OFF:
            self.pgconn.send_query(b"")
            super().wait(self._limit_wait(generators.execute(self.pgconn), self.ping_seconds))

    def _limit_wait(
        self, exchange: Generator[Any, Any, _T], seconds: float
    ) -> Generator[Any, Any, _T]:
        try:
            wanted = next(exchange)
            deadline = monotonic() + seconds
            while True:
                # `ready` is 0 each time that psycopg's own interval has passed.
                ready = yield wanted
                now = monotonic()
                if ready:
                    deadline = now + seconds
                elif now >= deadline:
                    self._give_up(seconds)
                wanted = exchange.send(ready)
        except StopIteration as end:
            value: _T = end.value
            return value

    def _give_up(self, seconds: float) -> None:
        info = self.info
        where = f"{info.host}:{info.port}"
        # Otherwise the clean-up, a ROLLBACK for example, would wait as long again.
        self.close()
        raise SilenceError(
            f"The server at {where} has not answered for {seconds:.3g} s; check whether "
            "it, or a pooler or proxy before it, is stuck (timeouts.silence_seconds says how long "
            "to wait)"
        )


def tls_settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    """The session's settings of TLS, also from the environment (PGSSLMODE …) and the
    file of authorities that libpq takes by itself. `sslmode` is `verify-ca` where libpq treats
    `require` as such.
    """
    found = {name: value for name, value in _tls_settings(raw).items() if name.startswith("ssl")}
    if found.get("sslmode") in _ASKED_FOR and _has_authorities():
        found.setdefault("sslrootcert", str(_AUTHORITIES.expanduser()))
    if found.get("sslmode") == "require" and "sslrootcert" in found:
        found["sslmode"] = "verify-ca"
    return found


def jdbc_tls(settings: Mapping[str, str]) -> dict[str, str]:
    """Connection properties of JDBC that check the server's certificate as these settings do.

    Raises `ConfigError` for those about certificates that JDBC does not know.
    """
    for name in _REVOKED:
        if name in settings:
            raise ConfigError(
                f"The dsn has {name}, and JDBC does not check whether a certificate is revoked",
                advice=f"remove {name}",
            )
    _refuse_pem_key(settings.get("sslkey"))
    properties = {name: settings[name] for name in _JDBC_TLS if name in settings}
    # JDBC would take it for a file.
    if properties.get("sslrootcert") == OF_THE_MACHINE:
        del properties["sslrootcert"]
        properties["sslfactory"] = _MACHINES_FACTORY
    return properties


def channel_binding(raw: psycopg.Connection[Any]) -> str:
    """Whether the session has to bind the login to TLS: `disable`, `prefer` or `require`."""
    return _tls_settings(raw).get("channel_binding", "prefer")


def _tls_settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    # psycopg's own info leaves out settings of the environment.
    options = raw.pgconn.info
    return {option.keyword.decode(): option.val.decode() for option in options if option.val}


def _has_authorities() -> bool:
    try:
        return _AUTHORITIES.expanduser().exists()
    except (RuntimeError, OSError):
        # A container's user may have no home, or one that it may not read.
        return False


def _refuse_pem_key(file: str | None) -> None:
    if file and Path(file).is_file() and b"-----BEGIN" in Path(file).read_bytes():
        raise ConfigError(
            f"The dsn's sslkey, {file}, is PEM, which JDBC cannot read",
            advice="convert it: openssl pkcs8 -topk8 -nocrypt -outform DER -in KEY -out KEY.pk8; "
            "psycopg reads that too",
        )


def new_ids() -> Iterator[UUID]:
    """UUIDs of version 7, which begin with the time in milliseconds (RFC 9562, 5.7): so new rows
    are neighbours in the index of a long queue. The rest is random, from the kernel: forked workers
    would share a generator's state.
    """
    while True:
        pool = bytearray(os.urandom(16 * _IDS_AT_ONCE))
        now = (time.time_ns() // 1_000_000).to_bytes(6)
        for place, byte in enumerate(now):
            pool[place::16] = bytes([byte]) * _IDS_AT_ONCE
        pool[6::16] = bytes(byte & 0x0F | 0x70 for byte in pool[6::16])
        pool[8::16] = bytes(byte & 0x3F | 0x80 for byte in pool[8::16])
        for start in range(0, len(pool), 16):
            yield UUID(bytes=bytes(pool[start : start + 16]))


def start_of_ids() -> bytes:
    """The first eight bytes of such a UUID, for a server that makes the others of the id of each
    moved message. Twelve of their bits are random, so that two sessions hardly give one row the
    same id.
    """
    milliseconds, (first, second) = time.time_ns() // 1_000_000, os.urandom(2)
    return milliseconds.to_bytes(6) + bytes([0x70 | first & 0x0F, second])


class Places(tuple[str, ...]):
    """Places of rows in a table, `ctid`, in hexadecimal digits, as one value of a statement."""

    __slots__ = ()


class _ArrayDumper(Dumper):
    """Sends items of one length, which are written in hexadecimal digits with or without hyphens,
    as PostgreSQL reads them without work. A batch's statements are about its thousand keys, and as
    text the server needs 0.7 µs to read each UUID.
    """

    format = Format.BINARY
    item: ClassVar[TypeInfo]
    item_bytes: ClassVar[int]

    def dump(self, obj: Sequence[str]) -> Buffer:
        oid = f"{self.item.oid:08x}"
        if not obj:
            return bytes.fromhex(_EMPTY + oid)
        length = f"{self.item_bytes:08x}"
        items = length + length.join(obj).replace("-", "")
        return bytes.fromhex(f"{_ONE_DIMENSION}{oid}{len(obj):08x}{_FIRST_INDEX}{items}")


class KeysDumper(_ArrayDumper):
    """For `Keys`, which are UUIDs."""

    item, item_bytes = types["uuid"], 16
    oid = item.array_oid


class PlacesDumper(_ArrayDumper):
    """For `Places`."""

    item, item_bytes = types["tid"], 6
    oid = item.array_oid


def instant_text(instant_us: int) -> str:
    """The instant of microseconds since 1970-01-01 UTC as the server reads a `timestamptz`."""
    cycles, rest_us = divmod(instant_us, _CYCLE_US)
    instant = instant_of(rest_us)
    year = instant.year + cycles * _CYCLE_YEARS
    era, year = ("", year) if year > 0 else (" BC", 1 - year)
    return f"{year:04}-{instant:%m-%d %H:%M:%S.%f}+00{era}"
