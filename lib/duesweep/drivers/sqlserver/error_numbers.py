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


FAULTS: Mapping[int, Fault] = {
    # Of statements (E).
    596: Fault.SERVICE,  # the session is being killed
    601: Fault.SERVICE,  # a read without locks met rows that move
    701: Fault.SERVICE,  # the resource pool has no memory
    802: Fault.SERVICE,  # the buffer pool has no memory
    845: Fault.SERVICE,  # a page's latch was waited for too long
    1101: Fault.SERVICE,  # the file group is full
    1105: Fault.SERVICE,  # the file group is full
    1204: Fault.SERVICE,  # the server has no memory for locks
    3989: Fault.SERVICE,  # the transaction that the request names has ended
    5123: Fault.SERVICE,  # a file of the database cannot be opened
    6005: Fault.SERVICE,  # the server shuts down
    8628: Fault.SERVICE,  # the plan took too long
    8645: Fault.SERVICE,  # memory for the statement was waited for too long
    8651: Fault.SERVICE,  # there is no memory for the statement
    9001: Fault.SERVICE,  # the log cannot be used
    9002: Fault.SERVICE,  # the log is full
    # Of logins and statements (E).
    615: Fault.DATABASE,  # the database is closed
    921: Fault.DATABASE,  # the database has not been recovered yet
    922: Fault.DATABASE,  # the database is being recovered
    926: Fault.DATABASE,  # the database is marked suspect, as in a recovery
    927: Fault.DATABASE,  # the database is being restored
    942: Fault.DATABASE,  # the database is offline
    945: Fault.DATABASE,  # files of the database cannot be opened
    952: Fault.DATABASE,  # the database changes its state
    954: Fault.DATABASE,  # the database is a mirror
    955: Fault.DATABASE,  # the mirrored database has no quorum
    976: Fault.DATABASE,  # a replica that takes no reads
    978: Fault.DATABASE,  # a replica that takes reads with ApplicationIntent only
    979: Fault.DATABASE,  # a replica that takes reads with another ApplicationIntent
    982: Fault.DATABASE,  # no replica can be read now
    983: Fault.DATABASE,  # a replica that changes its role
    988: Fault.DATABASE,  # the availability group has no quorum
    3906: Fault.DATABASE,  # the database is read-only, as after a failover
    # Of logins and statements (R, F, A).
    4060: Fault.SERVICE,  # the database cannot be opened; it may be recovering, moving or offline
    4221: Fault.SERVICE,  # a replica waits for old transactions
    10053: Fault.SERVICE,  # the connection was aborted
    10054: Fault.SERVICE,  # the connection was reset
    10060: Fault.SERVICE,  # the server did not answer
    10928: Fault.SERVICE,  # the limit of a resource is reached
    10929: Fault.SERVICE,  # the server is too busy for this database
    10936: Fault.SERVICE,  # the limit of a resource of the elastic pool is reached
    11001: Fault.SERVICE,  # the name of the server is unknown
    17197: Fault.SERVICE,  # the login took too long
    17830: Fault.SERVICE,  # the network failed during the login
    17889: Fault.SERVICE,  # the server has no connection left
    18401: Fault.SERVICE,  # the server runs its upgrade
    18451: Fault.SERVICE,  # administrators alone may log in now
    40143: Fault.SERVICE,  # the service met an error
    40189: Fault.SERVICE,  # the service met an error while it read
    40197: Fault.SERVICE,  # the service met an error, as in an upgrade or failover
    40501: Fault.SERVICE,  # the service is busy
    40540: Fault.SERVICE,  # the service met an error in the transaction
    40549: Fault.SERVICE,  # the session was ended: its transaction was long
    40550: Fault.SERVICE,  # the session was ended: it held many locks
    40551: Fault.SERVICE,  # the session was ended: it filled tempdb
    40552: Fault.SERVICE,  # the session was ended: it filled the log
    40553: Fault.SERVICE,  # the session was ended: it took much memory
    40613: Fault.SERVICE,  # the database is not available now
    40642: Fault.SERVICE,  # the server is too busy
    40648: Fault.SERVICE,  # there were too many requests
    40671: Fault.SERVICE,  # the server asks to try again later
    40675: Fault.SERVICE,  # the service is too busy
    40903: Fault.SERVICE,  # the server is busy
    42108: Fault.SERVICE,  # the database resumes
    42109: Fault.SERVICE,  # the database resumes
    49802: Fault.SERVICE,  # the database is unavailable now
    49918: Fault.SERVICE,  # there are not enough resources for the request
    49919: Fault.SERVICE,  # too many databases are being created or changed
    49920: Fault.SERVICE,  # the subscription has too many operations
    # Of statements (E, R).
    1205: Fault.TRANSACTION,  # the victim of a deadlock
    3960: Fault.TRANSACTION,  # an update conflict of a snapshot
    # Of statements (E, R).
    1222: Fault.LOCK,  # a lock was waited for too long
    # Of logins (E).
    911: Fault.LOGIN,  # there is no database of this name
    4064: Fault.LOGIN,  # the login's default database cannot be opened
    18452: Fault.LOGIN,  # the login is of a domain that is not trusted
    18456: Fault.LOGIN,  # the login failed
    18470: Fault.LOGIN,  # the login is disabled
    18486: Fault.LOGIN,  # the login is locked
    18487: Fault.LOGIN,  # the password has expired
    18488: Fault.LOGIN,  # the password has to be changed
    # Of statements (E).
    229: Fault.RIGHT,  # a right on an object is missing
    230: Fault.RIGHT,  # a right on a column is missing
    262: Fault.RIGHT,  # a right in the database is missing
    300: Fault.RIGHT,  # a right on the server is missing
    # Of statements (E).
    206: Fault.TABLE,  # a column has another type
    208: Fault.TABLE,  # there is no such table
    544: Fault.TABLE,  # the identity column takes no given value
    916: Fault.TABLE,  # the login is no user of the database
    3609: Fault.TABLE,  # a trigger has rolled back
    3616: Fault.TABLE,  # a trigger has failed, and the transaction is rolled back
    33504: Fault.TABLE,  # a security policy refuses the row
    # Of statements (E).
    220: Fault.ROW,  # a number does not fit
    232: Fault.ROW,  # a number does not fit
    241: Fault.ROW,  # a text is no date
    245: Fault.ROW,  # a text is no number
    511: Fault.ROW,  # the row is too long
    515: Fault.ROW,  # NULL in a column that refuses it
    547: Fault.ROW,  # a constraint refuses the row
    2601: Fault.ROW,  # a unique index has the key
    2627: Fault.ROW,  # a unique constraint has the key
    2628: Fault.ROW,  # a text is too long
    8114: Fault.ROW,  # a value cannot be converted
    8115: Fault.ROW,  # a number does not fit
    8152: Fault.ROW,  # a text is too long
}
