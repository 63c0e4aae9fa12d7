"""Jars are put in place together, each compared with its hash in the lock, or not at all."""

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_FILE = "io.delta_delta-spark_4.1_2.13-4.4.0.jar"


@pytest.fixture
def resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The jars that Spark resolves, by name; first the jar of the lock."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import fetch_jars  # noqa: PLC0415 - a script

    found = {_FILE: b"classes"}
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# a comment\n{hashlib.sha256(b'classes').hexdigest()}  {_FILE}\n")

    def resolve(_: str, ivy: Path) -> Path:
        (ivy / "jars").mkdir()
        for name, content in found.items():
            (ivy / "jars" / name).write_bytes(content)
        return ivy / "jars"

    monkeypatch.setattr(fetch_jars, "LOCK", lock)
    monkeypatch.setattr(fetch_jars, "resolve", resolve)
    return found


@pytest.mark.usefixtures("resolved")
def test_jars_of_the_lock_replace_the_folder_with_a_copy_of_the_lock(tmp_path: Path) -> None:
    from fetch_jars import fetch  # noqa: PLC0415 - a script

    folder = tmp_path / ".cache" / "jars"
    folder.mkdir(parents=True)
    (folder / "an old one.jar").touch()

    fetch(folder)

    assert {file.name for file in folder.iterdir()} == {_FILE, "jars.lock"}
    assert (folder / _FILE).read_bytes() == b"classes"
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("found", "named"),
    [({_FILE: b"others"}, _FILE), ({}, _FILE), ({_FILE: b"classes", "more.jar": b""}, "more.jar")],
    ids=["another one", "missing", "one more"],
)
def test_jars_that_are_not_those_of_the_lock_leave_what_was_there(
    found: dict[str, bytes], named: str, resolved: dict[str, bytes], tmp_path: Path
) -> None:
    from fetch_jars import fetch  # noqa: PLC0415 - a script

    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "an old one.jar").touch()
    resolved.clear()
    resolved.update(found)

    with pytest.raises(ValueError, match=named):
        fetch(folder)

    assert [file.name for file in folder.iterdir()] == ["an old one.jar"]


def test_every_line_of_the_lock_is_a_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from fetch_jars import LOCK, locked  # noqa: PLC0415 - a script

    text = LOCK.read_text("utf-8")

    assert [jar.file for jar in locked(text)] == [
        line.split()[1] for line in text.splitlines() if line.endswith(".jar")
    ]
