"""Reads transport addresses. One file for each transport's grammar."""

from duesweep.core.address.msmq import MsmqAddress
from duesweep.core.address.postgresql import PostgreSqlAddresses, TableName, quoted
from duesweep.core.address.sqlserver import SqlServerAddresses, SqlServerTable, bracketed

__all__ = [
    "MsmqAddress",
    "PostgreSqlAddresses",
    "SqlServerAddresses",
    "SqlServerTable",
    "TableName",
    "bracketed",
    "quoted",
]
