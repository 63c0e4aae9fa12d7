"""Whose fault the errors of SQL Server are, by their numbers. One that is not here is a fault that
does not pass by itself, unless its SQLSTATE says that the connection is gone.

Sources: E, Microsoft's list of engine errors
(learn.microsoft.com/sql/relational-databases/errors-events/database-engine-events-and-errors);
R, the numbers that SqlClient's configurable retry logic tries again by default; F, the ones that
Entity Framework's execution strategy does; A, Azure SQL's pages on transient faults and on limits
(troubleshoot-common-errors-issues, resource-limits-logical-server).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    """Whose fault an error is."""

    # Of the server or the connection, for all tables; it passes.
    SERVICE = "service"
    # Of one database; it passes. A queue's may be another one than the store's.
    DATABASE = "database"
    # The whole transaction is rolled back; the next one may succeed.
    TRANSACTION = "transaction"
    # Another session holds a lock; it passes, but holds up one table only.
    LOCK = "lock"
    # Of the login, for good.
    LOGIN = "login"
    # A right is missing.
    RIGHT = "right"
    # Of one table, until a person corrects it.
    TABLE = "table"
    # Of one row.
    ROW = "row"


class Known(NamedTuple):
    """An error: whose fault it is, where it arises (`login`, `statement`, `both`), its meaning, and
    who says so.
    """

    fault: Fault
    arises: str
    meaning: str
    sources: str


def _of(fault: Fault, arises: str, sources: str, meanings: Mapping[int, str]) -> dict[int, Known]:
    return {number: Known(fault, arises, meaning, sources) for number, meaning in meanings.items()}


KNOWN: Mapping[int, Known] = {
    **_of(
        Fault.SERVICE,
        "statement",
        "E",
        {
            596: "the session is being killed",
            601: "a read without locks met rows that move",
            701: "the resource pool has no memory",
            802: "the buffer pool has no memory",
            845: "a page's latch was waited for too long",
            1101: "the file group is full",
            1105: "the file group is full",
            1204: "the server has no memory for locks",
            3989: "the transaction that the request names has ended",
            5123: "a file of the database cannot be opened",
            6005: "the server shuts down",
            8628: "the plan took too long",
            8645: "memory for the statement was waited for too long",
            8651: "there is no memory for the statement",
            9001: "the log cannot be used",
            9002: "the log is full",
        },
    ),
    **_of(
        Fault.DATABASE,
        "both",
        "E",
        {
            615: "the database is closed",
            921: "the database has not been recovered yet",
            922: "the database is being recovered",
            926: "the database is marked suspect, as in a recovery",
            927: "the database is being restored",
            942: "the database is offline",
            945: "files of the database cannot be opened",
            952: "the database changes its state",
            954: "the database is a mirror",
            955: "the mirrored database has no quorum",
            976: "a replica that takes no reads",
            978: "a replica that takes reads with ApplicationIntent only",
            979: "a replica that takes reads with another ApplicationIntent",
            982: "no replica can be read now",
            983: "a replica that changes its role",
            988: "the availability group has no quorum",
            3906: "the database is read-only, as after a failover",
        },
    ),
    **_of(
        Fault.SERVICE,
        "both",
        "R, F, A",
        {
            4060: "the database cannot be opened; it may be recovering, moving or offline",
            4221: "a replica waits for old transactions",
            10053: "the connection was aborted",
            10054: "the connection was reset",
            10060: "the server did not answer",
            10928: "the limit of a resource is reached",
            10929: "the server is too busy for this database",
            10936: "the limit of a resource of the elastic pool is reached",
            11001: "the name of the server is unknown",
            17197: "the login took too long",
            17830: "the network failed during the login",
            17889: "the server has no connection left",
            18401: "the server runs its upgrade",
            18451: "administrators alone may log in now",
            40143: "the service met an error",
            40189: "the service met an error while it read",
            40197: "the service met an error, as in an upgrade or failover",
            40501: "the service is busy",
            40540: "the service met an error in the transaction",
            40549: "the session was ended: its transaction was long",
            40550: "the session was ended: it held many locks",
            40551: "the session was ended: it filled tempdb",
            40552: "the session was ended: it filled the log",
            40553: "the session was ended: it took much memory",
            40613: "the database is not available now",
            40642: "the server is too busy",
            40648: "there were too many requests",
            40671: "the server asks to try again later",
            40675: "the service is too busy",
            40903: "the server is busy",
            42108: "the database resumes",
            42109: "the database resumes",
            49802: "the database is unavailable now",
            49918: "there are not enough resources for the request",
            49919: "too many databases are being created or changed",
            49920: "the subscription has too many operations",
        },
    ),
    **_of(
        Fault.TRANSACTION,
        "statement",
        "E, R",
        {1205: "the victim of a deadlock", 3960: "an update conflict of a snapshot"},
    ),
    **_of(Fault.LOCK, "statement", "E, R", {1222: "a lock was waited for too long"}),
    **_of(
        Fault.LOGIN,
        "login",
        "E",
        {
            911: "there is no database of this name",
            4064: "the login's default database cannot be opened",
            18452: "the login is of a domain that is not trusted",
            18456: "the login failed",
            18470: "the login is disabled",
            18486: "the login is locked",
            18487: "the password has expired",
            18488: "the password has to be changed",
        },
    ),
    **_of(
        Fault.RIGHT,
        "statement",
        "E",
        {
            229: "a right on an object is missing",
            230: "a right on a column is missing",
            262: "a right in the database is missing",
            300: "a right on the server is missing",
        },
    ),
    **_of(
        Fault.TABLE,
        "statement",
        "E",
        {
            206: "a column has another type",
            208: "there is no such table",
            544: "the identity column takes no given value",
            916: "the login is no user of the database",
            3609: "a trigger has rolled back",
            3616: "a trigger has failed, and the transaction is rolled back",
            33504: "a security policy refuses the row",
        },
    ),
    **_of(
        Fault.ROW,
        "statement",
        "E",
        {
            220: "a number does not fit",
            232: "a number does not fit",
            241: "a text is no date",
            245: "a text is no number",
            511: "the row is too long",
            515: "NULL in a column that refuses it",
            547: "a constraint refuses the row",
            2601: "a unique index has the key",
            2627: "a unique constraint has the key",
            2628: "a text is too long",
            8114: "a value cannot be converted",
            8115: "a number does not fit",
            8152: "a text is too long",
        },
    ),
}
