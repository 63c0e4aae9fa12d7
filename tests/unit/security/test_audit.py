"""The audit does not call packages safe that it could not compare; the list has all jars."""

import tomllib
from collections.abc import Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import duesweep

ROOT = Path(__file__).resolve().parents[3]
SAFE = {"name": "a", "version": "1", "vulns": []}
KNOWN = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found on PyPI"}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


@pytest.mark.parametrize(
    ("packages", "locked", "code"),
    [
        ([SAFE], "a", 0),
        ([SAFE, KNOWN], "ab", 1),
        ([SKIPPED, KNOWN], "bc", 1),
        ([SAFE, SKIPPED], "ac", 2),
        ([SAFE], "ac", 2),
        ([], "a", 2),
    ],
)
def test_audit_succeeds_only_if_all_packages_were_compared(
    packages: list[dict[str, Any]], locked: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from audit import judge  # noqa: PLC0415 - a script

    pins = {(name, {"a": "1", "b": "2", "c": "3"}[name]) for name in locked}

    assert judge(packages, pins) == code

    told = capsys.readouterr()
    assert ("CVE-1, fixed in 3" in told.out) == (KNOWN in packages)
    assert ("lacks these packages: c 3." in told.err) == ("c" in locked)
    assert ("The audit is incomplete" in told.err) == (code == 2 or "c" in locked)


def test_audit_asks_for_all_that_a_lock_can_install_on_any_machine() -> None:
    from audit import files_of, locked_packages  # noqa: PLC0415 - a script

    lock = (
        "# a comment\nnumpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:0\n"
        "numpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:1\npika==1.4.4 \\\n"
    )
    pins = locked_packages(lock)

    assert pins == {("numpy", "2.4.6"), ("numpy", "2.5.5"), ("pika", "1.4.4")}
    files = list(files_of(pins))
    assert sorted(line for file in files for line in file.split()) == [
        "numpy==2.4.6",
        "numpy==2.5.5",
        "pika==1.4.4",
    ]
    assert len(files) == 2


def test_list_names_duesweep_and_every_jar_with_its_hash() -> None:
    from audit import jars, own_version  # noqa: PLC0415 - a script

    assert own_version() == duesweep.__version__
    lock = (ROOT / "lib" / "duesweep" / "drivers" / "jars.toml").read_text(encoding="utf-8")
    listed = {component["purl"]: component["hashes"] for component in jars(lock)}

    assert len(listed) == lock.count('" = "')
    assert "pkg:maven/io.delta/delta-spark_4.1_2.13@4.4.0" in listed
    assert "pkg:maven/com.microsoft.sqlserver/mssql-jdbc@12.10.2.jre11" in listed
    assert all(hashes[0]["content"] in lock for hashes in listed.values())


def test_program_needs_the_packages_that_are_named_and_all_are_in_the_lock() -> None:
    """`./duesweep` installs these alone; tests install the whole lock."""
    from environment import LOCK, PROGRAM, packages  # noqa: PLC0415 - a script

    locked = packages(LOCK.read_text("utf-8"))
    named = set(PROGRAM.read_text("utf-8").split())

    assert sum(lines.count("\n    --hash=sha256:") for lines in locked.values()) == (
        LOCK.read_text("utf-8").count("--hash=sha256:")
    )
    assert named <= locked.keys()
    assert _needed(locked.keys()) == named


def _needed(locked: Collection[str]) -> set[str]:
    """The dependencies of duesweep with all that users can choose, on any machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    chosen = [each for name in extras if name not in {"all", "dev"} for each in extras[name]]
    left = list(map(Requirement, [*project["dependencies"], *chosen]))
    found: set[str] = set()
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}{sorted(requirement.extras)}"
        if key in found or name not in locked:
            continue
        found |= {key, name}
        with suppress(PackageNotFoundError):
            left += [
                each
                for each in map(Requirement, requires(name) or ())
                if any(_is_for(each, extra) for extra in ("", *requirement.extras))
            ]
    return {each for each in found if "[" not in each}


def _is_for(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is None or "extra" not in str(marker) or marker.evaluate({"extra": extra})
