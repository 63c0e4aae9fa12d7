"""The start of a session: whatever a role, a database, a server or a dsn has set, names mean the
server's own, commits are durable, no wait lasts for ever, and times are in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from duesweep.core.errors import ConfigError
from duesweep.core.policy import SessionWaits

# Unqualified functions and operators are the server's own. Otherwise a role that may create one in
# a schema of the path could have it run with this role's rights.
SEARCH_PATH = "pg_catalog, pg_temp"
# These override the settings of the role, the database and the dsn.
SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
    # It also quotes the names of types, which are compared.
    "quote_all_identifiers": "off",
    # A commit that the server has not written to its disk may be lost in a crash. Waiting for
    # replicas stays as it is set.
    "synchronous_commit": "on",
}
# If a machine is lost, the server must not keep its transaction's locks for hours.
_KEEPALIVE = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
# For statements about all that is due: memory in which a million keys are sorted, and no nested
# loops. If the planner does not know yet how many retry counters there are, it would compare
# each message with each of them. Servers up to 17 add a huge cost to a loop that cannot be avoided,
# and would compile such a statement for a second.
LARGE_STATEMENTS = {"work_mem": "128MB", "enable_nestloop": "off", "jit": "off"}
# Each character of these has an equivalent in UTF-8. Some characters of several bytes have none,
# but chr() does not make them.
_WHOLE_ENCODINGS = {"UTF8", "SQL_ASCII", "LATIN1"}
WIDE_ENCODINGS = ("EUC", "MULE")
# The server process, and the search path before it was set.
_STARTED = "SELECT pg_backend_pid(), reset_val::text FROM pg_settings WHERE name = 'search_path'"
_found_names: dict[str, Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class SessionStart:
    """Facts of a new session: whether a pooler is before the server (it invents the process id that
    a client gets), the search path with which the session began, and the names in statements around
    a stored text, which escape characters that the server cannot send.
    """

    is_pooled: bool
    search_path: str
    text_names: Mapping[str, str] = field(default_factory=dict)

    def jdbc_settings(self) -> dict[str, str]:
        """The setting by which the JDBC driver begins with our search path: Spark runs a statement
        of its own before `sessionInitStatement`.

        Poolers refuse it, and lose prepared statements. Behind one the path has to have the
        server's own names first: raises `ConfigError` where another schema precedes them.
        """
        if not self.is_pooled:
            return {"currentSchema": SEARCH_PATH}
        names = [name.strip(' "') for name in self.search_path.split(",")]
        if "pg_catalog" in names[1:]:
            raise ConfigError(
                f"The search_path of the sweeper's role is {self.search_path}, so functions of "
                "other schemas would run instead of the server's, and a pooler lets Spark set none",
                advice=f"run ALTER ROLE … SET search_path = {SEARCH_PATH} for the sweeper's role, "
                "or connect to the server itself",
            )
        return {"prepareThreshold": "0"}


def set_up(raw: psycopg.Connection[Any], waits: SessionWaits) -> SessionStart:
    """Set up a session, in one round trip. Behind a pooler nothing is set: its process may be lent
    to others after each transaction, so each one makes the settings.
    """
    settings = SETTINGS | time_outs(waits) | _KEEPALIVE
    query = settings_query(settings, only_in=raw.info.backend_pid)
    try:
        cursor = raw.execute(f"{query}; {_STARTED}".encode())
        while cursor.nextset():
            pass
        ((backend, path),) = cursor.fetchall()
        is_pooled = backend != raw.info.backend_pid
        if is_pooled:
            # It refuses this if it lends a process for a statement only.
            with raw.transaction():
                pass
        encoding = raw.info.parameter_status("server_encoding") or "UTF8"
        return SessionStart(is_pooled, path, _text_names(raw, encoding))
    except BaseException:
        raw.close()
        raise


def _text_names(raw: psycopg.Connection[Any], encoding: str) -> Mapping[str, str]:
    """The names for the characters that have no equivalent in UTF-8, in encodings of one byte a
    character. The server is asked for each, once in a process.
    """
    if encoding not in _found_names:
        is_whole = encoding in _WHOLE_ENCODINGS or encoding.startswith(WIDE_ENCODINGS)
        unreadable = []
        for code in () if is_whole else range(128, 256):
            try:
                raw.execute("SELECT pg_catalog.chr(%s::pg_catalog.int4)", [code])
            except psycopg.errors.UntranslatableCharacter:
                unreadable.append(code)
        ends = (f", chr({code}), E'\\\\x{code:02x}')" for code in unreadable)
        begin = "replace(" * len(unreadable)
        _found_names[encoding] = {"text_begin": begin, "text_end": "".join(ends)}
    return _found_names[encoding]


def time_outs(waits: SessionWaits) -> dict[str, str]:
    """All time-outs that a role or a database can set for its sessions, in milliseconds."""
    seconds = {
        "lock_timeout": waits.lock_seconds,
        "statement_timeout": waits.statement_seconds,
        # How long a client may send nothing within a transaction.
        "idle_in_transaction_session_timeout": waits.idle_seconds,
        # These would end a session while the driver waits for tasks or for the ledger.
        "idle_session_timeout": 0.0,
        "transaction_timeout": 0.0,
    }
    return {name: str(round(limit * 1_000)) for name, limit in seconds.items()}


def settings_query(
    settings: Mapping[str, str], *, in_transaction: bool = False, only_in: int | None = None
) -> str:
    """Statements that set the search path and these settings, for the session or in this
    transaction only, except limits that this version of the server does not know. Commits that are
    already durable stay as they are. They set nothing in another server process than `only_in`, if
    that is given.

    The first ones have no function that another schema could replace, and remove a time-out that
    could end the others.
    """
    wanted = {"search_path": SEARCH_PATH, **settings}
    rows = ", ".join(f"({literal(name)}, {literal(value)})" for name, value in wanted.items())
    where = "" if only_in is None else f" AND pg_backend_pid() = {only_in}"
    return (
        f"SET LOCAL search_path = {SEARCH_PATH}; SET LOCAL statement_timeout = 0; SELECT "  # noqa: S608 - literals
        f"set_config(name, wanted.value, {str(in_transaction).lower()})"
        f" FROM (VALUES {rows}) AS wanted (name, value)"
        " JOIN pg_settings USING (name)"
        f" WHERE (name <> 'synchronous_commit' OR setting = 'off'){where}"
    )


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return sql.Literal(value).as_string(None)
