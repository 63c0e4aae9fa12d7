"""A power failure: files of a ledger that were not synced are empty, torn or gone afterwards."""

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

# The rest of a file that was not synced.
EMPTY, TORN, GONE = "empty", "torn", "gone"
LEFT = (EMPTY, TORN, GONE)
# Names of files that a failure may spare.
COMMITS, DATA, CHECKPOINTS = "[0-9]*.json", "part-*.parquet", "[0-9]*.checkpoint.parquet"


def note_synced(notes: Path, root: Path) -> None:
    """Note in the file `notes` that all files under `root` are synced."""
    with notes.open("a", encoding="utf-8") as file:
        file.writelines(f"{_state(path.stat())}\n" for path in _files(root))


@contextmanager
def noting_syncs(notes: Path) -> Iterator[None]:
    """Note which files are synced in the block."""
    real = os.fsync

    def fsync(opened: int) -> None:
        real(opened)
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{_state(os.fstat(opened))}\n")

    os.fsync = fsync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = real


def lose_unsynced(notes: Path, root: Path, left: str | None, seed: int = 0) -> list[Path]:
    """Do to the ledger's files that were not synced as a power failure may: `left` is the rest of
    each; None: of each another, at random, or it is spared. Returns the files.
    """
    rng = random.Random(seed)
    files = unsynced(notes, root)
    for path in files:
        if outcome := left or rng.choice((*LEFT, None)):
            lose([path], outcome)
    return files


def unsynced(notes: Path, root: Path) -> list[Path]:
    """The ledger's files that were not synced."""
    synced = set(notes.read_text("utf-8").splitlines())
    return [path for path in sorted(_files(root)) if _state(path.stat()) not in synced]


def lose(files: Iterable[Path], left: str, *spared: str) -> None:
    """Leave this rest of each file, except for the ones with these patterns of names."""
    for path in files:
        if any(path.match(pattern) for pattern in spared):
            continue
        if left == GONE:
            path.unlink()
        else:
            os.truncate(path, 0 if left == EMPTY else path.stat().st_size // 2)


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("*/**/*") if path.is_file())


def _state(stat: os.stat_result) -> str:
    return f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
