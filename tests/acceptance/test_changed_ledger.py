"""A ledger that other programs changed by Delta's rules: sweeps continue, and its numbers agree."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from support.endpoint import Endpoint

Change = Callable[[DeltaTable], object]


def _rewritten(
    change: Callable[[pa.Table], pa.Table], partition_by: list[str] | None = None
) -> Change:
    """As another program rewrites a table."""

    def rewrite(table: DeltaTable) -> None:
        rows = change(table.to_pyarrow_table())
        write_deltalake(
            table, rows, mode="overwrite", schema_mode="overwrite", partition_by=partition_by
        )

    return rewrite


def _column_as(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(name)
        return rows.set_column(at, name, rows.column(name).cast(kind))

    return change


_CHANGES: dict[str, Change] = {
    "a column more": lambda table: table.alter.add_columns(
        [Field("theirs", PrimitiveType("string"))]
    ),
    "change data feed": lambda table: table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}
    ),
    "append only": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "a checkpoint": DeltaTable.create_checkpoint,
    "a rule that holds": lambda table: table.alter.add_constraint({"named": "source <> ''"}),
    "z-order": lambda table: table.optimize.z_order(["source"]),
    "a vacuum of all": lambda table: table.vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    ),
    "partitioned": _rewritten(lambda rows: rows, partition_by=["source"]),
    "a column less": _rewritten(lambda rows: rows.drop_columns(["destination"])),
    "a narrower column": _rewritten(_column_as("lateness_ms", pa.int32())),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_changed_tables_take_the_next_sweep_and_stay_readable(
    endpoint: Endpoint, change: Change
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(4, ["Billing", "Nowhere"])
    assert endpoint.run("sweep", retry__max_attempts=1).code == 3
    for name in ("tombstones", "errors"):
        table = DeltaTable(Path(endpoint.ledger.root) / name)
        if name == "tombstones" or change is not _CHANGES["a narrower column"]:
            change(table)
    endpoint.delay_many(4, ["Billing", "Nowhere"])

    assert endpoint.run("sweep", retry__max_attempts=1).code == 3

    assert (endpoint.ledger.count("tombstones"), endpoint.ledger.count("errors")) == (8, 4)
    assert endpoint.document("audit")["findings"] == []
    assert sum(g["open"] for g in endpoint.document("errors", "list")["groups"]) == 4
    assert endpoint.run("maintain").code == 0
    assert endpoint.document("audit")["findings"] == []
