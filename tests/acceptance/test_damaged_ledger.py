"""Commands on a ledger with a damaged file, or on a file system that Delta cannot commit to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.endpoint import Endpoint
from support.sweeps import run_sweep

_READERS = (
    ("audit",),
    ("errors", "list"),
    ("report", "--out", "{folder}/report.html"),
    ("report", "--json"),
    ("show", "{key}"),
    ("errors", "show", "{key}"),
    ("errors", "replay", "--all", "--yes", "--reason", "x"),
    ("maintain",),
    ("plan",),
    ("list",),
    ("sweep",),
    ("restore", "{key}"),
)


def _newest_commit(table: Path) -> Path:
    return sorted((table / "_delta_log").glob("*.json"))[-1]


def _newest_data(table: Path) -> Path:
    return max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty commit": lambda table: _newest_commit(table).write_bytes(b""),
    "torn commit": lambda table: _newest_commit(table).write_bytes(b'{"add":{"pa'),
    "empty data": lambda table: _newest_data(table).write_bytes(b""),
    "missing data": lambda table: _newest_data(table).unlink(),
}


@pytest.mark.parametrize("table", ["errors", "tombstones", "sweeps"])
@pytest.mark.parametrize("damage", _DAMAGES)
def test_no_command_ends_in_a_traceback_over_a_damaged_file(
    damage: str, table: str, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    endpoint.delay("Billing")
    run_sweep(endpoint, retry__max_attempts=1)
    (key,) = [row.message_key for row in endpoint.ledger.rows("errors")]
    _DAMAGES[damage](endpoint.ledger.root / table)
    folder = str(endpoint.folder)

    for command in _READERS:
        ran = endpoint.run(*(part.format(folder=folder, key=key) for part in command))

        assert ran.code in {0, 2, 3, 4}, (command, ran.told)
        assert "Traceback" not in ran.err, command
        if ran.code in {2, 4}:
            assert f"{endpoint.ledger.root}/{table}" in ran.told, (command, ran.told)
    assert endpoint.run("audit").code == 2
