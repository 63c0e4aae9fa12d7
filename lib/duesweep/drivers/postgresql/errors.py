"""Finds out whose fault a PostgreSQL error is, by its SQLSTATE, and which GRANT a refused statement
needs.

https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from duesweep.core.address import TableName, quote_name
from duesweep.core.errors import (
    NO_DESCRIPTORS,
    ConfigError,
    DestinationError,
    MissingRightError,
    Problem,
    RefusedMessageError,
    RefusedStatementError,
    SilentServiceError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
    lacks_descriptors,
    make_storable,
    raise_interruption,
)
from duesweep.drivers.dsn import DsnError, Value
from duesweep.drivers.postgresql.dsn import check_libpq, for_libpq
from duesweep.drivers.statements import Names

_UNREACHED = "check that it runs, and that this machine and every executor can connect to it"
_REFUSED = (
    "this usually passes by itself; if not, look into the log of the server, or of a pooler "
    "before it"
)
_UNRESOLVED = "check the host's name in the dsn, and that this machine can resolve it"
_ABOUT_LOGINS = re.compile(r'authentication failed|pg_hba.conf|role "|\(28')
# A refusal in libpq's verbose form. A translated severity has no space either.
_REFUSAL = re.compile(r"(?P<severity>[^\s:]+):  (?:(?P<state>[0-9A-Z]{5}): )?(?P<text>.*)")
_LOCATION = re.compile(r"\n[^\s:]+:  (?:\w+, )?[\w./-]+:\d+(?=\n|$)")
_NAMELESS_USER = re.compile(r"local user with ID \d+ does not exist")
_ABOUT_NAMES = re.compile("failed to resolve host|could not translate host name")
_REPEATED = re.compile(
    r"connection failed: |connection (?:to server )?(?:at|on socket) \"[^\"]*\"(?:, port \d+)?"
    r" failed: "
    r"|\s*Is the server running (?:on|locally)[^?]*\?"
)
_WHERE_PASSWORDS_BELONG = (
    "put it into the dsn in the environment: DUESWEEP_STORE__DSN="
    "postgresql://user:password@host:5432/database, or DUESWEEP_QUEUES__<NAME>__DSN for queues "
    "with a dsn of their own"
)
# The server's refusals of a session that last, by SQLSTATE: whatever language its texts are in.
# Every other one may pass.
_LASTING_REFUSALS = {
    "28P01": "correct user or password in the dsn",
    "28000": "correct the user in the dsn, or create this role with the right to log in",
    "3D000": "correct the database in the dsn, or create it",
    "42501": "have an administrator GRANT CONNECT ON DATABASE to the user of the dsn",
    # Of settings in the dsn's options, or in PGOPTIONS.
    "22023": "correct the options in the dsn",
    "42704": "correct the options in the dsn",
}
# By words that are the same in all languages, or of poolers, whose SQLSTATEs say little.
_LASTING_TEXTS = {
    r"pg_hba\.conf|pool_hba\.conf": "allow this machine, user and database in the server's "
    "pg_hba.conf",
    "authentication failed": "correct user or password in the dsn",
    r"no such user|[Tt]enant or user not found|role \"[^\"]*\" (?:does|is) not": (
        "correct the user in the dsn, or create this role with the right to log in"
    ),
    r"no such database|database \"[^\"]*\" does not exist": "correct the database in the dsn, or "
    "create it",
    r"unsupported (?:\w+ )?startup parameter": "a pooler refuses this setting: remove it from the "
    "dsn's options and from the environment (PGOPTIONS, PGGEQO), or allow it in the pooler",
    "not allowed in statement pooling mode": "let the pooler lend a process for a transaction or a "
    "session (PgBouncer: pool_mode = transaction)",
    r"SSL (?:connection is )?required": "set sslmode=require in the dsn",
}
_NO_RIGHT = "42501"
_ASK_FOR_RIGHT = "have an administrator GRANT this right to the user of the dsn"
_PERMISSION_DENIED = re.compile(r"permission denied for (?P<kind>\w+) (?P<name>.*)")
# The rights that a statement needs on the table of a name in braces.
_RIGHTS = {
    "SELECT": r"(?<!DELETE )(?:FROM|JOIN|USING) {table}|(?:DELETE FROM|UPDATE) {table}"
    r"|INSERT INTO {table}.*ON CONFLICT",
    "INSERT": r"INSERT INTO {table}",
    "UPDATE": r"UPDATE {table}|FROM {table}.*FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)"
    r"|INSERT INTO {table}.*DO UPDATE",
    "DELETE": r"DELETE FROM {table}",
}
_SCHEMA = re.compile(r'"(?:[^"]|"")*"\.')
# libpq's texts, which come without a SQLSTATE.
_LOST_CONNECTIONS = (
    "server closed the connection",
    "connection is lost",
    "SSL connection has been",
)
# One side's certificate was refused, a file of the dsn cannot be used, the server has no TLS, or
# a setting has a value that libpq does not know.
_ABOUT_TLS = re.compile(
    r"certificate|private key|does not support SSL|unknown ca|invalid \w+ value|weak sslmode",
    re.IGNORECASE,
)
# What libpq quotes, such as the host, may have any name.
_QUOTED = re.compile("\"[^\"]*\"|'[^']*'")
# The texts of these errors name no table: lock time-out, statement time-out, deadlock.
_NAMELESS = {
    "55P03": Problem(
        "; another session holds a lock there",
        "look for ALTER, TRUNCATE or VACUUM FULL, or for a frozen process of duesweep",
    ),
    "57014": Problem("", "if the server is only slow, raise timeouts.silence_seconds"),
    "40P01": Problem(""),
}


class SilenceError(psycopg.OperationalError):
    """The server has not answered in time."""


@contextmanager
def map_errors(
    describe: Callable[[], str | None] = lambda: None,
    grants: Callable[[str], str | None] = lambda _: None,
) -> Iterator[None]:
    """Turn psycopg's errors into `StoreError`s, or `TransactionLostError` where a retry may help.

    `describe` describes the statement: the server's texts about locks and time-outs name no table.
    `grants` returns what grants the right that the server's text misses.
    """
    try:
        yield
    except psycopg.Error as error:
        # A pipeline that a Ctrl-C interrupts ends with an error of its own.
        raise_interruption(error)
        if error.sqlstate == _NO_RIGHT:
            advice = grants(str(error.diag.message_primary)) or _ASK_FOR_RIGHT
            raise MissingRightError(_sentence(error), advice=advice) from error
        raise _service_error(error, _describe(error, describe())) from error


@contextmanager
def destination_errors(table: TableName) -> Iterator[None]:
    """Turn the errors of an INSERT into `table`, or a COPY, into errors of a message, the
    destination or the service.
    """
    try:
        yield
    except psycopg.Error as error:
        raise_interruption(error)
        text = f"Queue table {table}: {_sentence(error)}"
        state = error.sqlstate
        if state is None or state[:2] in _SERVICE_CLASSES or state in _SERVICE_STATES:
            raise _service_error(error, Problem(text)) from error
        if state[:2] in _MESSAGE_CLASSES and state not in _QUEUE_STATES:
            raise RefusedMessageError(text) from error
        more = _QUEUE_STATES.get(state, Problem("", "look at its triggers, rules and policies"))
        raise DestinationError(
            text + more.text, transient=state in _TRIED_AGAIN_AT_QUEUES, advice=more.advice
        ) from error


@contextmanager
def row_errors() -> Iterator[None]:
    """Turn the errors of statements that store a row into errors of its message, where it is at
    fault.
    """
    try:
        yield
    except StoreError as error:
        state = getattr(error.__cause__, "sqlstate", None) or ""
        if state[:2] in _MESSAGE_CLASSES and state not in _QUEUE_STATES:
            raise RefusedMessageError(error.text) from error
        raise


@contextmanager
def unusual_errors() -> Iterator[None]:
    """Turn the errors of statements into `UnusualBatchError`, except errors of the service."""
    try:
        yield
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or cause.sqlstate is None:
            raise
        if cause.sqlstate[:2] in _SERVICE_CLASSES or cause.sqlstate in _STOPPED:
            raise
        raise UnusualBatchError(_sentence(cause)) from error


@contextmanager
def connect_errors(dsn: str) -> Iterator[None]:
    """Turn the errors of opening a session into `ConfigError` or `StoreError`."""
    _refuse_misread(dsn)
    try:
        yield
    except (psycopg.OperationalError, OSError) as error:
        if lacks_descriptors(error) or _has_no_descriptor(error):
            raise StoreError(
                f"Cannot connect to PostgreSQL at {_server_of(dsn)}: {NO_DESCRIPTORS.text}",
                transient=True,
                advice=NO_DESCRIPTORS.advice,
            ) from error
        if isinstance(error, OSError):
            raise
        # Without the repeated name of the server, and without libpq's question.
        text = " ".join(_REPEATED.sub("", _with_state(error)).split())
        if "no password supplied" in text or "empty password" in text:
            raise ConfigError(
                f"{_server_of(dsn)} asks for a password, and the dsn has none",
                advice=_WHERE_PASSWORDS_BELONG,
            ) from error
        if _NAMELESS_USER.search(text):
            raise ConfigError(
                f"The dsn of {_server_of(dsn)} names no user, and this process's user has no name "
                "either",
                advice="give a user in the dsn: postgresql://user@host/database",
            ) from error
        if lasting := _lasting_refusal(error):
            what = "login" if _ABOUT_LOGINS.search(text) else "connection"
            raise ConfigError(
                f"PostgreSQL at {_server_of(dsn)} rejected the {what}: {text}", advice=lasting
            ) from error
        if _ABOUT_TLS.search(_QUOTED.sub("", str(error))):
            raise ConfigError(
                f"Cannot connect to PostgreSQL at {_server_of(dsn)} with the dsn's TLS "
                f"settings: {text}",
                advice="check sslmode, sslrootcert, sslcert and sslkey in the dsn, and the host's "
                "name in the server's certificate",
            ) from error
        advice = _UNRESOLVED if _ABOUT_NAMES.search(text) else _UNREACHED
        if _refusals(error):
            advice = _REFUSED
        text = f"Cannot connect to PostgreSQL at {_server_of(dsn)}: {text}"
        raise StoreError(text, transient=True, advice=advice) from error


def _has_no_descriptor(error: Exception) -> bool:
    """Whether libpq or the resolver of names, which may give another reason, had no descriptor."""
    text = str(error)
    if not ("no error details available" in text or _ABOUT_NAMES.search(text)):
        return False
    try:
        socket.socket().close()
    except OSError as own:
        return lacks_descriptors(own)
    return False


def _with_state(error: psycopg.Error) -> str:
    """The error's sentence, with the SQLSTATE of a refusal at its end, as other errors have it."""
    if error.sqlstate:
        return _sentence(error)

    def state_last(found: re.Match[str]) -> str:
        state = found["state"]
        return f"{found['severity']}: {found['text']} ({state})" if state else found[0]

    # libpq may have tried twice, with TLS and without.
    lines = dict.fromkeys(_REFUSAL.sub(state_last, _LOCATION.sub("", str(error))).splitlines())
    return make_storable(" ".join(" ".join(lines).split()))


def _refusals(error: psycopg.Error) -> Sequence[tuple[str | None, str]]:
    """SQLSTATE and text of each refusal of a session: of several hosts, there may be several."""
    if error.sqlstate:
        return [(error.sqlstate, str(error))]
    found = _REFUSAL.finditer(_LOCATION.sub("", str(error)))
    return [(each["state"], each["text"]) for each in found if each["state"] or "FATAL" in each[0]]


def _lasting_refusal(error: psycopg.Error) -> str | None:
    """What to do, if the server refused the session and will do so again; None if that may pass."""
    found = []
    for state, text in _refusals(error):
        by_words = (advice for words, advice in _LASTING_TEXTS.items() if re.search(words, text))
        found.append(next(by_words, _LASTING_REFUSALS.get(state or "")))
    return next(iter(found), None) if all(found) else None


def _refuse_misread(dsn: str) -> None:
    """Raise `ConfigError` if libpq would misread the dsn, or a variable that completes it."""
    try:
        for_libpq(dsn)
    except DsnError as error:
        text = f"The dsn is wrong: {error.problem.text}"
        raise ConfigError(text, advice=error.problem.advice) from None
    for option in Conninfo.get_defaults():
        if option.envvar and option.envvar.decode() in os.environ and option.val:
            try:
                value = option.val.decode()
                check_libpq({option.keyword.decode(): Value(value, value)})
            except ValueError:
                variable = option.envvar.decode()
                raise ConfigError(
                    f"{variable} in the environment is wrong", advice="correct it"
                ) from None


# The row's own fault: data exception, integrity violation, check option of a view, program limit
# (a value too large), errors raised by triggers.
_MESSAGE_CLASSES = {"22", "23", "44", "54", "P0"}
# These are faults of a whole queue, and so are all states that are not listed here. Each adds its
# text to the server's.
_QUEUE_STATES = {
    "2200H": Problem(
        "; its column seq has used up its 32 bits", "alter the column and its sequence to bigint"
    ),
    "55P03": Problem(
        "; another session holds a lock on it", "look for ALTER, TRUNCATE or VACUUM FULL"
    ),
    "57014": Problem(
        "; the statement took too long",
        "if the server is only slow, raise timeouts.silence_seconds",
    ),
    "42501": Problem(
        "", "grant INSERT on it (and USAGE on its sequence and schema) to the sweeper's role"
    ),
    "25006": Problem("; the server is read-only", "connect to the primary server"),
    "42P01": Problem(
        "; the table is gone, or its trigger names another one without a schema",
        "run ALTER FUNCTION … SET search_path for the trigger's function (docs/security.md)",
    ),
}
# A read-only server: after a failover it may take writes. A queue that is locked, or slow, is not
# tried again in this slice: each try would hold up the messages for other queues as long again.
_TRIED_AGAIN_AT_QUEUES = {"25006"}
# The server ended the transaction of a client that was frozen.
_IDLE_CLIENT = "25P03"
# The service's fault: connection, rolled back transaction, resources, system, internal errors, and
# operator intervention except a cancelled statement.
_SERVICE_CLASSES = {"08", "40", "53", "58", "XX"}
_SERVICE_STATES = {"57P01", "57P02", "57P03", "57P04", "57P05", _IDLE_CLIENT}
# Also statements that took too long: tried again, they would take as long again.
_STOPPED = _SERVICE_STATES | {"57014"}
# Serialization failure and deadlock: the same transaction may succeed the next time.
_LOST_STATES = {"40001", "40P01"}
# Connection, rollback (deadlock, serialization), resources, intervention, system.
_PASSING_CLASSES = {"08", "40", "53", "57", "58"}
# The frozen client; a lock that is not available, and an object in use. The rest of class 55 lasts.
_PASSING_STATES = {_IDLE_CLIENT, "55P03", "55006"}
# A person has to alter the table: a state that does not allow it (no replica identity), no unique
# key for ON CONFLICT, a rule that the statement cannot have.
_TABLE_STATES = {"55000", "42P10", "0A000"}


def _service_error(error: psycopg.Error, problem: Problem) -> StoreError:
    if error.sqlstate in _LOST_STATES:
        return TransactionLostError.of(problem)
    if isinstance(error, SilenceError):
        return SilentServiceError.of(problem, transient=True)
    if error.sqlstate in _TABLE_STATES:
        hint = error.diag.message_hint
        advice = problem.advice or (make_storable(hint.rstrip(".")) if hint else None)
        return RefusedStatementError(problem.text, advice=advice)
    state = error.sqlstate
    if state is None:
        is_passing = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    else:
        is_passing = state in _PASSING_STATES or state[:2] in _PASSING_CLASSES
    return StoreError.of(problem, transient=is_passing)


def _describe(error: psycopg.Error, what: str | None) -> Problem:
    text = _sentence(error)
    if any(lost in text for lost in _LOST_CONNECTIONS):
        text = text.removeprefix("consuming input failed: ")
        # The rest guesses that the server crashed: in a pipeline its own last words are lost.
        text = text.partition(" This probably means")[0]
        return Problem(f"The connection to PostgreSQL was lost: {text}", _UNREACHED)
    if what is None or error.sqlstate not in _NAMELESS:
        return Problem(text)
    more = _NAMELESS[error.sqlstate]
    return Problem(f"Statement {what}: {text}{more.text}", more.advice)


def _sentence(error: psycopg.Error) -> str:
    primary = error.diag.message_primary
    text = primary if primary else " ".join(str(error).split()) or type(error).__name__
    return make_storable(text if not error.sqlstate else f"{text} ({error.sqlstate})")


def _server_of(dsn: str) -> str:
    parts = conninfo_to_dict(for_libpq(dsn))
    server = f"{parts.get('host', 'the local socket')}:{parts.get('port', 5432)}"
    return f"{server}/{parts.get('dbname', '')}"


def grant_of(refusal: str, user: str, text: str, names: Names) -> str | None:
    """The advice that grants `user` the right that the server misses for the statement `text`; None
    if the refusal does not name the object.
    """
    found = _PERMISSION_DENIED.search(refusal)
    if found is None:
        return None
    role, thing = quote_name(user), quote_name(found["name"])
    if found["kind"] == "schema":
        rights = "USAGE, CREATE" if "CREATE TABLE" in text else "USAGE"
        return f"run GRANT {rights} ON SCHEMA {thing} TO {role}"
    if found["kind"] == "sequence":
        # It is in the schema of its table, which the refusal does not name.
        filled = [str(table) for key, table in names.items() if f"INSERT INTO {{{key}}}" in text]
        schema = next((each[0] for each in map(_SCHEMA.match, filled) if each), "")
        return f"run GRANT USAGE ON SEQUENCE {schema}{thing} TO {role}"
    for key, table in names.items():
        if str(table).endswith(thing):
            named = re.escape(f"{{{key}}}")
            granted = [
                right
                for right, pattern in _RIGHTS.items()
                if re.search(pattern.replace("{table}", named), text, re.DOTALL)
            ]
            return f"run GRANT {', '.join(granted) or 'ALL'} ON {table} TO {role}"
    return None
