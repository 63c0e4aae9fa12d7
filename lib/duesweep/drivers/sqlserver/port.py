"""Finds out whether anybody listens at a server's port.

Microsoft's driver tries a name that is unknown, or a port that refuses it, until its login time-out
is over, and then does not say what was wrong.
"""

import re
import socket

from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.errors import StoreError

# A refusal comes at once. For anything else, the driver has its own limits and texts.
_SECONDS = 1.0
_MICROSOFTS = re.compile("SQL Server|msodbcsql", re.IGNORECASE)
# Not TCP.
_PIPES = ("np:", "lpc:", "admin:")


def refuse_closed_port(dsn: OdbcDsn) -> None:
    """Raise a transient `StoreError` if the server's name is unknown, or if nobody listens at its
    port.
    """
    if dsn.port is None or not _is_plain(dsn):
        return
    try:
        socket.create_connection((dsn.host, dsn.port), _SECONDS).close()
    except socket.gaierror as error:
        raise _unreachable(dsn, f"{dsn.host} is unknown here ({error.strerror})") from error
    except ConnectionRefusedError as error:
        text = f"port {dsn.port} of {dsn.host} refuses the connection"
        raise _unreachable(dsn, text) from error
    except OSError:
        return


def _is_plain(dsn: OdbcDsn) -> bool:
    """Whether the dsn leads to this port only: FreeTDS has names of its own for servers, and a
    failover partner is another server.
    """
    pairs = dsn.pairs
    is_microsofts = "driver" not in pairs or _MICROSOFTS.search(pairs["driver"])
    is_tcp = not pairs["server"].lower().startswith(_PIPES)
    return bool(is_microsofts and is_tcp and "failover_partner" not in pairs)


def _unreachable(dsn: OdbcDsn, text: str) -> StoreError:
    return StoreError(
        f"No SQL Server takes a session at {dsn.server}: {text}",
        transient=True,
        advice="check that it runs, and that its name and port in the dsn are right",
    )
