"""The recorded files: compared with today's output, or written again."""

import difflib
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

RENEW = "DUESWEEP_RENEW_GOLDEN"
ROOT = Path(__file__).parents[2] / "golden" / "recorded"
# More lines are not read; the first ones explain most of the rest.
_MOST_LINES = 200


def compare(folder: Path, printed: Mapping[str, str]) -> None:
    """Fail unless `folder` has just these files, by name, with these texts. With
    DUESWEEP_RENEW_GOLDEN=1, write them instead; never on CI, where the changes are not read.
    """
    if os.environ.get(RENEW) == "1":
        if os.environ.get("CI"):
            pytest.fail(f"{RENEW} is set on CI, which compares and never renews", pytrace=False)
        _renew(folder, printed)
        return
    recorded = {file.name: file.read_text(encoding="utf-8") for file in _files(folder)}
    # In the order of the commands: the first file that differs is nearest to the reason.
    names = [*printed, *(name for name in recorded if name not in printed)]
    differing = [name for name in names if recorded.get(name) != printed.get(name)]
    if differing:
        pytest.fail(_explain(folder, differing, recorded, printed), pytrace=False)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*") if file.is_file())


def _renew(folder: Path, printed: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in _files(folder):
        if file.name not in printed:
            file.unlink()
    for name, text in printed.items():
        (folder / name).write_text(text, encoding="utf-8")


def _explain(
    folder: Path, differing: list[str], recorded: Mapping[str, str], printed: Mapping[str, str]
) -> str:
    lines = [line for name in differing for line in _diff(name, recorded, printed)]
    rest = len(lines) - _MOST_LINES
    return "\n".join(
        [
            f"{len(differing)} recorded outputs in {folder} differ from what is printed now:",
            *(f"  {name}" for name in differing),
            *islice(lines, _MOST_LINES),
            *([f"… {rest:,} more lines"] if rest > 0 else []),
            f"If that is wanted, renew them: {RENEW}=1 tests/run tests/golden. Read the diff, and "
            "commit it alone, with a reason for each file (docs/testing.md).",
        ]
    )


def _diff(name: str, recorded: Mapping[str, str], printed: Mapping[str, str]) -> Iterator[str]:
    before, after = (texts.get(name) for texts in (recorded, printed))
    yield from difflib.unified_diff(
        (before or "").splitlines(),
        (after or "").splitlines(),
        f"recorded/{name}" if before is not None else "not recorded",
        f"now/{name}" if after is not None else "not printed",
        lineterm="",
    )
