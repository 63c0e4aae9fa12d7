"""Transport addresses: from text to what they name. One file for each transport's grammar."""

from duesweep.address.msmq import MsmqAddress
from duesweep.address.postgresql import PostgreSqlAddresses, TableName, quoted
from duesweep.address.sqlserver import SqlServerAddresses, SqlServerTable, bracketed

__all__ = [
    "MsmqAddress",
    "PostgreSqlAddresses",
    "SqlServerAddresses",
    "SqlServerTable",
    "TableName",
    "bracketed",
    "quoted",
]
