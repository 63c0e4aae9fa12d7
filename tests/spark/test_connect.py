"""The same sweep over Spark Connect: nothing but the DataFrame API is used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.ports import SPARK_CONNECT, one_at_a_time

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.long
def test_sweep_and_commands_from_python_over_spark_connect(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(1_500)
    endpoint.delay("Nowhere")
    endpoint.delay("Later.Mails", due_in_seconds=86_400)

    with one_at_a_time(SPARK_CONNECT):
        done = subprocess.run(
            [
                sys.executable,
                str(_ROOT / "tests/support/connect_process.py"),
                endpoint.config_file(),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"PYTHONPATH": str(_ROOT / "lib")},
            check=False,
        )

    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    swept = told["swept"]
    assert told["planned"] == ["spark", 1_501]
    assert (swept["dispatched"], swept["failed"], swept["ledger_error"]) == (1_500, 1, None)
    assert (told["cancelled"], told["changes"]) == (1, ["cancelled"])
    assert told["outcomes"] == [["cancelled", 1], ["dispatched", 1_500]]
    assert told["module"].startswith("pyspark.sql.connect")
    assert len(endpoint.queue_rows("Billing")) == 1_500
    assert len(ledger.rows("retries")) == len(ledger.rows("sweeps")) == 1
