"""Settings of duesweep's sessions. They override those of the role and the database."""

from collections.abc import Mapping

from psycopg import sql

from duesweep.core.timeouts import Limits

UTC_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
}


# For statements about all that is due: memory in which a million keys are sorted, and no nested
# loops. Where the planner does not know yet how many retry counters there are, it would compare
# each message with each of them. Servers up to 17 add a huge cost to a loop that cannot be avoided,
# and would compile such a statement for a second.
LARGE_STATEMENTS = {"work_mem": "128MB", "enable_nestloop": "off", "jit": "off"}


def time_outs(limits: Limits) -> dict[str, str]:
    """All time-outs that a role or a database can set for its sessions."""
    return {
        "lock_timeout": _milliseconds(limits.lock_seconds),
        "statement_timeout": _milliseconds(limits.statement_seconds),
        "idle_in_transaction_session_timeout": _milliseconds(limits.idle_seconds),
        # These would end a session while the driver waits for tasks or for the ledger.
        "idle_session_timeout": "0",
        "transaction_timeout": "0",
        # If the driver's machine is lost, the server must not keep its sweep's lock for hours.
        "tcp_keepalives_idle": "15",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }


def settings_query(settings: Mapping[str, str], *, in_transaction: bool = False) -> str:
    """A query that sets them, for the session or in this transaction only, except those that this
    version of the server does not know.
    """
    rows = ", ".join(f"({_literal(name)}, {_literal(value)})" for name, value in settings.items())
    return (
        f"SELECT set_config(name, wanted.value, {str(in_transaction).lower()})"  # noqa: S608 - literals
        f" FROM (VALUES {rows}) AS wanted (name, value)"
        " JOIN pg_settings USING (name)"
    )


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None)


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1_000))
