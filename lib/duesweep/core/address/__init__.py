"""Reads transport addresses. One file for each transport's grammar."""

from duesweep.core.address.msmq import MsmqAddress
from duesweep.core.address.postgresql import PostgreSqlAddresses, TableName, quote_name
from duesweep.core.address.sqlserver import SqlServerAddresses, SqlServerTable, bracket_name

__all__ = [
    "MsmqAddress",
    "PostgreSqlAddresses",
    "SqlServerAddresses",
    "SqlServerTable",
    "TableName",
    "bracket_name",
    "quote_name",
]
