"""The audit does not take what it could not compare for what is safe; the list has all jars."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAFE = {"name": "a", "version": "1", "vulns": []}
KNOWN = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found on PyPI"}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([SAFE], 0),
        ([SAFE, KNOWN], 1),
        ([SKIPPED, KNOWN], 1),
        ([SAFE, SKIPPED], 2),
        ([SKIPPED], 2),
        ([], 2),
    ],
)
def test_audit_succeeds_only_if_all_packages_were_compared(
    packages: list[dict[str, Any]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from audit import judge  # noqa: PLC0415 - a script

    assert judge(packages) == code

    told = capsys.readouterr()
    assert ("CVE-1, fixed in 3" in told.out) == (KNOWN in packages)
    assert ("The audit is incomplete" in told.err) == (code == 2)


def test_every_jar_of_the_lock_is_listed_with_its_hash() -> None:
    from build_sbom import jars  # noqa: PLC0415 - a script

    lock = (ROOT / "jars.lock").read_text(encoding="utf-8")
    listed = {component["purl"]: component["hashes"] for component in jars(lock)}

    assert len(listed) == lock.count(".jar\n")
    assert "pkg:maven/io.delta/delta-spark_4.1_2.13@4.4.0" in listed
    assert "pkg:maven/com.microsoft.sqlserver/mssql-jdbc@12.10.2.jre11" in listed
    assert all(hashes[0]["content"] in lock for hashes in listed.values())
