"""What a difference looks like, and who may renew."""

import re
from pathlib import Path

import pytest

from support.golden.commands import Printed
from support.golden.recorded import RENEW, ROOT, compare
from support.golden.statement_world import FORMS

RECORDED = {"1-list.txt": "$ duesweep list\ndue  messages\nall  3\n--- exit code 0\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what was recorded once."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(RENEW, "1")
    compare(tmp_path / "world", RECORDED)
    monkeypatch.delenv(RENEW)
    return tmp_path / "world"


def _failure(folder: Path, printed: dict[str, str]) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        compare(folder, printed)
    return str(failed.value)


def test_what_is_the_same_passes(folder: Path) -> None:
    compare(folder, RECORDED)


def test_changed_word_is_a_readable_difference(folder: Path) -> None:
    changed = {name: text.replace("messages", "letters") for name, text in RECORDED.items()}

    lines = _failure(folder, changed).splitlines()

    assert lines[1:3] == ["  1-list.txt", "--- recorded/1-list.txt"]
    assert [line for line in lines if "due  " in line] == ["-due  messages", "+due  letters"]
    assert f"{RENEW}=1 tests/run tests/golden" in lines[-1]


def test_file_that_is_missing_or_left_over_is_named(folder: Path) -> None:
    assert "1-list.txt" in _failure(folder, {})
    assert "+++ now/2-show.txt" in _failure(folder, {**RECORDED, "2-show.txt": "$ duesweep show\n"})


def test_each_recorded_folder_is_compared_by_a_test() -> None:
    """A test that is gone, or that pytest no longer finds by its file's name, would leave one."""
    others = set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)}
    tests = "".join(file.read_text("utf-8") for file in others)
    compared = {f"sweep_{form}" for form in FORMS} | set(re.findall(r'"([\w-]+)"', tests))
    recorded = {file.parent for file in ROOT.rglob("*") if file.is_file()}

    assert len(recorded) > 1
    assert [folder for folder in sorted(recorded) if folder.name not in compared] == []


def test_output_whose_last_line_has_no_end_is_another_one() -> None:
    for out, is_told in (("[]\n", False), ("[]", True)):
        printed = Printed(["list"], out, "", 0)
        assert ("no end of line" in printed.text) is is_told
        assert ("no end of line" in printed.document) is is_told


def test_long_difference_is_cut(folder: Path) -> None:
    text = _failure(folder, {"1-list.txt": "".join(f"{n}\n" for n in range(5_000))})

    assert len(text.splitlines()) < 250
    assert "more lines" in text


def test_renewing_removes_what_is_no_longer_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RENEW, "1")

    compare(folder, {"2-show.txt": "$ duesweep show\n"})

    assert [file.name for file in folder.iterdir()] == ["2-show.txt"]


def test_ci_refuses_to_renew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(RENEW, "1")

    assert RENEW in _failure(folder, {"2-show.txt": "$ duesweep show\n"})

    assert [file.name for file in folder.iterdir()] == ["1-list.txt"]
