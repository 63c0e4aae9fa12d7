"""A configuration that is read again."""

from pathlib import Path

import pytest

from duesweep.cli.reloading import reload
from duesweep.config import settings_of
from duesweep.fleet.members import members_of
from duesweep.sweep.stop import Stop
from duesweep.watch.tick import Ticker
from support.config_files import MINIMAL, file_of

_SQL_SERVER = """
[store]
kind = "sqlserver"
dsn = "Server=a;Database=sales"
endpoint = "Sales.Orders"
[ledger]
root = "/ledger"
[queues.other]
dsn = "Server=b;Database=sales"
[[route]]
destination = "*"
connection = "other"
"""


def test_file_that_does_not_fit_what_stays_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = file_of(MINIMAL)
    members, _ = members_of(settings_of([file]), ())
    (before,) = members
    ticker = Ticker(before.context, Stop(), has_spark=False)
    # The new queues have no kind of their own, and the store's stays.
    file_of(_SQL_SERVER)

    assert reload(members, [ticker], [file], ()) is False
    assert members == [before]
