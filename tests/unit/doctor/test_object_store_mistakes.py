"""The doctor reports a mistake in the settings of a ledger on an object store, as a finding."""

from pathlib import Path

import pytest

from support.commands import run_python

_SETTINGS = """
store.kind = "postgresql"
store.dsn = "postgresql://nobody@127.0.0.1:1/nothing"
store.endpoint = "Sales"
"""


@pytest.mark.parametrize(
    ("root", "environment"),
    [
        ("gs://b/x", {"GOOGLE_SERVICE_ACCOUNT": "/nonexistent"}),
        ("abfss://c@a.dfs.core.windows.net/x", {"AZURE_STORAGE_ACCOUNT_KEY": "zzz"}),
        ("s3://b/x", {"AWS_ALLOW_HTTP": "x"}),
        ("abfss://nocontainer/x", {}),
        ("s3:/b/x", {}),
        ("gs:/x", {}),
        ("s3://", {}),
    ],
    ids=[
        *("no file of Google", "no key of Azure", "no boolean of AWS", "no container"),
        *("one slash of AWS", "one slash of Google", "no bucket"),
    ],
)
def test_storage_that_cannot_be_opened_is_a_fault(
    root: str, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "duesweep.toml"
    file.write_text(_SETTINGS)
    words = ["doctor", "--no-spark", "--json", "--config", file, "--set", f"ledger.root={root}"]

    # Without a region, AWS's library asks the network for it.
    found = run_python("-m", "duesweep", *words, AWS_REGION="eu-west-1", **environment)

    assert (found.code, "Traceback" in found.err) == (3, False)
    of_ledger = [one for one in found.document["findings"] if one["check"] == "ledger"]
    assert [one["severity"] for one in of_ledger] == ["fault"]
