"""The same sweep over Spark Connect: nothing but the DataFrame API is used."""

import json

import pytest

from support.commands import ROOT, run_python
from support.endpoint import Endpoint
from support.ports import SPARK_CONNECT, one_at_a_time


@pytest.mark.long
@pytest.mark.parametrize(
    ("root", "folder"),
    [("", "ledger"), pytest.param("ledgers", "warehouse/ledgers.db", marks=pytest.mark.long)],
    ids=["ledger in a folder", "ledger in a catalog"],
)
def test_sweep_and_commands_from_python_over_spark_connect(
    endpoint: Endpoint, root: str, folder: str
) -> None:
    endpoint.set_up("Billing")
    config = endpoint.config_file(**({"ledger__root": root} if root else {}))
    endpoint.delay_many(1_500)
    endpoint.delay("Nowhere")
    endpoint.delay("Later.Mails", due_in_seconds=86_400)

    with one_at_a_time(SPARK_CONNECT):
        done = run_python(ROOT / "tests/support/connect_process.py", config)

    assert done.code == 0, done.err[-3_000:]
    told = json.loads(done.out.splitlines()[-1])
    swept = told["swept"]
    assert told["planned"] == ["spark", 1_501]
    assert (swept["dispatched"], swept["failed"], swept["ledger_error"]) == (1_500, 1, None)
    assert (told["cancelled"], told["changes"]) == (1, ["cancelled"])
    assert told["outcomes"] == [["cancelled", 1], ["dispatched", 1_500]]
    assert told["module"].startswith("pyspark.sql.connect")
    assert len(endpoint.queue_rows("Billing")) == 1_500
    assert told["rows"] == [1, 1]
    assert (endpoint.folder / folder / "tombstones" / "_delta_log").is_dir()
