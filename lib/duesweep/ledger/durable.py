"""The files of a ledger in a local folder: they are on the disk before the journal forgets their
rows; commits that a power failure tore are dropped, because the journal still has their rows; and
which file is damaged.

Neither delta-rs nor Delta on Spark waits for the disk. The new files and their folders are synced
alone: `syncfs` would also write the pages of a database on the same disk.
A mark in the root keeps the last version of each table that is on the disk, and the journal forgets
nothing before it is written. Without it, after an upgrade for example, all files are synced.
"""

import errno
import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from duesweep.core.errors import LedgerError, Problem
from duesweep.ledger.base import CHANGES, TABLES, holds_data, local_folder

_MARK, _DROPPED = ".duesweep.synced", ".duesweep.dropped"
# Delta's checkpoint of a version, and the file that names the newest.
_CHECKPOINT, _HINT = "checkpoint.parquet", "_last_checkpoint"
# Sweeps and commands that journals had while a damaged commit was there, as JSON.
_NOTES = ".duesweep.unsettled"
_NAMES = (*TABLES, CHANGES)
# The ones of unsettled sweeps and of maintenance; a failure may leave any of them.
_MOST_UNSYNCED, _MOST_GONE = 64, 8
# A file system that has no `fsync` of folders says so in these ways.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EISDIR}


def make_durable(ledger_root: str) -> None:
    """Wait until all that was committed under a local root is on the disk. Other storages confirm
    nothing before that. Raises `LedgerError` if the disk does not take it; nothing may be forgotten
    then.
    """
    root = local_folder(ledger_root)
    if root is None:
        return
    synced = _read_mark(root)
    with disk_errors(root, "could not be brought to the disk"):
        # In parallel, because it is waiting; the disk takes several at once.
        with ThreadPoolExecutor(len(_NAMES)) as pool:
            versions = list(pool.map(lambda name: _sync(root / name, synced.get(name)), _NAMES))
        found = {
            name: each for name, each in zip(_NAMES, versions, strict=True) if each is not None
        }
        if found == synced:
            return
        if synced.keys() != found.keys():
            # A table is new, and perhaps the root.
            for folder in (root, *root.absolute().parents):
                _sync_folder(folder)
        # A power failure may bring the mark before this one back, which only costs time.
        new = root / f"{_MARK}.{os.getpid()}-{threading.get_ident()}"
        new.write_text(json.dumps(found), encoding="utf-8")
        _sync_file(new)
        new.replace(root / _MARK)


@contextmanager
def disk_errors(root: Path, fault: str) -> Iterator[None]:
    """Raise `LedgerError` with this fault of the ledger for an error of the disk, or of a file."""
    try:
        yield
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise LedgerError(
            f"The ledger under {root} {fault}: {cause}; the journal keeps the rows", transient=True
        ) from error


def drop_torn(root: Path, unsettled: Collection[str]) -> list[str]:
    """Drop the commits that are not known to be on the disk, starting with the first of a table
    that is damaged, and damaged copies of whole ones; their paths. The caller is the ledger's only
    writer.

    The journal has the rows of `unsettled` sweeps and commands, and keeps them as long as
    `has_torn`. A table with other rows in these commits stays as it is, until the sources of all of
    them have noted theirs here: another program, or an earlier version, may have written and
    forgotten them. A table without data has no rows to lose.
    """
    notes, kept = root / _NOTES, set(unsettled)
    with suppress(OSError, TypeError, ValueError):
        kept.update(json.loads(notes.read_text(encoding="utf-8")))
    dropped: list[Path] = []
    # Without a commit that removed them, the files of the ones before it count.
    while found := [
        path
        for name, torn in _all_torn(root)
        if not holds_data(root / name) or all(_is_kept(commit, kept) for commit in torn)
        for path in _drop(root, name, torn)
    ]:
        dropped += found
    for path in list(_torn_copies(root)):
        path.unlink(missing_ok=True)
        dropped.append(path)
    if has_torn(root):
        # The disk may be full.
        with suppress(OSError):
            notes.write_text(json.dumps(sorted(kept)), encoding="utf-8")
    else:
        notes.unlink(missing_ok=True)
    return [str(path) for path in dropped]


def _is_kept(commit: Path, kept: Collection[str]) -> bool:
    """Whether a commit is torn itself or gone, has rows of these sweeps and commands only, or none
    that are new. Files that it replaced, as a compaction and a removal of rows do, are there until
    a VACUUM, before which all is synced.
    """
    try:
        actions = list(_actions_of(commit))
    except (FileNotFoundError, ValueError):
        return bool(kept)
    owners = {action["txn"]["appId"].partition("/")[0] for action in actions if "txn" in action}
    has_new = any(action["add"]["dataChange"] for action in actions if "add" in action)
    if not owners and has_new:
        table = commit.parents[1]
        replaced = [action["remove"]["path"] for action in actions if "remove" in action]
        has_new = not replaced or not all((table / unquote(each)).exists() for each in replaced)
    return owners <= set(kept) and (bool(owners) or not has_new)


def _torn_copies(root: Path) -> Iterator[Path]:
    """Files that are not whole, and repeat what commits say: a reader that finds one takes the
    table for damaged, and does without it.
    """
    for name, last in _read_mark(root).items():
        log = root / name / "_delta_log"
        commits = list(_commits(log, last))
        for version in range(last, last + len(commits) + 1):
            checkpoint = _commit(log, version, _CHECKPOINT)
            is_torn = checkpoint.exists() and not _is_whole_parquet(checkpoint)
            if is_torn and _reads_until(log, version):
                yield from (log / _HINT, checkpoint)
        newest = _newest_checkpoint(log)
        if newest >= last and not any(log.glob(f"{newest:020}.checkpoint*")):
            yield log / _HINT
        with suppress(FileNotFoundError, ValueError):
            for path in [*commits, *_data_of(root / name, commits)]:
                for checksum in _checksums(path):
                    # Without it, Hadoop reads a file unchecked.
                    if checksum.exists() and not _is_whole_checksum(checksum):
                        yield checksum


def _is_whole_checksum(checksum: Path) -> bool:
    content = checksum.read_bytes()
    if not checksum.name.startswith("."):
        # Delta's, as JSON.
        return content.rstrip().endswith(b"}")
    of = checksum.with_name(checksum.name[1:].removesuffix(".crc"))
    size = of.stat().st_size if of.exists() else 0
    chunk = int.from_bytes(content[4:8], "big")
    is_begun = content[:4] == b"crc\0" and chunk > 0
    return is_begun and len(content) == 8 + 4 * -(-size // chunk)


def has_torn(root: Path) -> bool:
    """Whether there is anything that `drop_torn` is for. Then nothing may be written."""
    return any(True for _ in chain(_all_torn(root), _torn_copies(root)))


def refuse_torn(root: Path) -> None:
    """Raise `LedgerError` if `drop_torn` has left something."""
    if has_torn(root):
        raise LedgerError(
            f"A power failure damaged commits of the ledger under {root}, and not all rows in and "
            "after them are known to be in journals; the journal keeps its own",
            advice="run `duesweep sweep` for each source of the ledger, two times. If that does "
            "not help, restore a backup of the ledger, and run `duesweep audit`",
            transient=True,
        )


def find_damage(root: Path, names: Iterable[str]) -> tuple[str, Problem] | None:
    """The first of these tables with an empty, torn or missing file, and which file, with advice;
    None: no such file is found. Reads whole logs, so it is for tables that failed.
    """
    for name in names:
        # A file that this user may not read need not be damaged.
        with suppress(OSError):
            if damage := _damage(root / name):
                return name, Problem(damage, repair(root))
    return None


def repair(root: Path) -> str:
    """The advice for a damaged file."""
    restore = "restore it from a backup of the ledger, and run `duesweep audit`"
    if has_torn(root):
        return (
            f"run `duesweep sweep`, which drops a commit whose rows the journal has. Else {restore}"
        )
    return restore


def _damage(table: Path) -> str | None:
    """Which file of a table's log or data is damaged or missing, as a sentence."""
    files = sorted((table / "_delta_log").glob("[0-9]*"))
    for path in files:
        if path.suffix == ".parquet" and not _is_whole_parquet(path):
            return f"{path} is empty or torn"
    added: dict[str, int] = {}
    for path in files:
        if path.suffix != ".json":
            continue
        try:
            actions = list(_actions_of(path))
        except ValueError:
            return f"{path} is empty or torn"
        for action in actions:
            if "add" in action:
                added[action["add"]["path"]] = action["add"]["size"]
            elif "remove" in action:
                added.pop(action["remove"]["path"], None)
    for name, size in added.items():
        file = table / unquote(name)
        if not file.is_file():
            return f"{file} is missing"
        if not _is_whole(file, size):
            return f"{file} is empty or torn"
    return None


def _all_torn(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """The tables with commits to drop, and these; not if a reader needs a checkpoint of them."""
    synced = _read_mark(root)
    for name in _NAMES:
        last = synced.get(name)
        log = root / name / "_delta_log"
        # Nothing was written after such a table was created.
        is_new = _commit(log, 0).exists() and not _commit(log, 1).exists()
        if last is None and is_new and not holds_data(root / name):
            last = -1
        torn = [] if last is None else _torn(root / name, last)
        if torn and _reads_until(log, int(torn[0].stem) - 1):
            yield name, torn


def _sync(table: Path, last: int | None) -> int | None:
    """Sync the commits after `last`, or all files; the version that is on the disk then. None:
    there is no table. Raises `ValueError` for a damaged commit: synced, it would stay damaged.
    """
    log = table / "_delta_log"
    if not log.is_dir():
        return None
    if last is None or not _commit(log, last).exists():
        for path in table.rglob("*"):
            if path.is_file():
                _sync_file(path)
        for folder in (table, *(path for path in table.rglob("*") if path.is_dir())):
            _sync_folder(folder)
        return max((int(path.stem) for path in log.glob("[0-9]*.json")), default=None)
    if torn := _torn(table, last):
        raise ValueError(f"{torn[0]} or a file of it is empty, torn or missing")
    commits = list(_commits(log, last))
    newest = log.glob(f"{_newest_checkpoint(log):020}.checkpoint*")
    for path in [*_data_of(table, commits), *commits, *newest, log / _HINT]:
        _sync_file(path)
        for checksum in _checksums(path):
            _sync_file(checksum)
    if commits:
        for folder in (table, log):
            _sync_folder(folder)
    return last + len(commits)


def _commits(log: Path, last: int) -> Iterator[Path]:
    """The commits after the version `last`; they have no gaps."""
    version = last + 1
    while (path := _commit(log, version)).exists():
        yield path
        version += 1


def _commit(log: Path, version: int, kind: str = "json") -> Path:
    return log / f"{version:020}.{kind}"


def _reads_until(log: Path, version: int) -> bool:
    """Whether a log, once cleaned up perhaps, has all for this version without a later file."""
    for each in range(version, -1, -1):
        if _is_whole_parquet(_commit(log, each, _CHECKPOINT)):
            return True
        if not _commit(log, each).exists():
            return False
    return True


def _data_of(table: Path, commits: Iterable[Path]) -> Iterator[Path]:
    """The data files that commits add; another process may have removed one again."""
    for commit in commits:
        for action in _actions_of(commit):
            if "add" in action:
                yield table / unquote(action["add"]["path"])


def _newest_checkpoint(log: Path) -> int:
    """The version of the newest checkpoint, which may be newer than the commits. -1: not known."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((log / _HINT).read_text(encoding="utf-8"))["version"])
    return -1


def _checksums(path: Path) -> Iterator[Path]:
    """Files of Spark for a file: Hadoop's checksums, and Delta's of the version."""
    yield path.with_name(f".{path.name}.crc")
    if path.suffix == ".json":
        yield path.with_suffix(".crc")
        yield path.with_name(f".{path.stem}.crc.crc")


def _torn(table: Path, last: int) -> list[Path]:
    """The commits after `last`, starting with the first that is damaged, lacks data or is gone.
    Data that a later commit has removed may be gone. Another process may drop them at that moment.
    """
    log = table / "_delta_log"
    if last >= 0 and not _commit(log, last).exists():
        # Delta has cleaned its log up to a later version since.
        return []
    commits = list(_commits(log, last))
    gap = last + len(commits) + 1
    beyond = [f"{log}/{gap + each:020}.json" for each in range(1, _MOST_UNSYNCED)]
    # Of commits that are all gone.
    beyond += [f"{log}/{gap + each:020}.{_CHECKPOINT}" for each in range(_MOST_GONE)]
    # Hundreds of names a sweep, most of them of no file: as a `Path` each takes 30 times as long.
    if after_gap := [Path(name) for name in beyond if os.path.exists(name)]:  # noqa: PTH110
        commits += [_commit(log, gap), *after_gap]
    added: list[dict[str, int]] = []
    for commit in commits:
        try:
            actions = list(_actions_of(commit))
        except (FileNotFoundError, ValueError):
            break
        adds = (action["add"] for action in actions if "add" in action)
        added.append({add["path"]: add["size"] for add in adds})
        for removed in (action["remove"]["path"] for action in actions if "remove" in action):
            for files in added[:-1]:
                files.pop(removed, None)
    lacking = (
        number
        for number, files in enumerate(added)
        if not all(_is_whole(table / unquote(name), size) for name, size in files.items())
    )
    return commits[next(lacking, len(added)) :]


def _is_whole(data: Path, size: int) -> bool:
    try:
        return data.stat().st_size == size and _is_whole_parquet(data)
    except OSError:
        return False


def _drop(root: Path, name: str, torn: Sequence[Path]) -> Sequence[Path]:
    """Move commits away, with checkpoints and checksums of their versions. Their data files stay:
    no commit names them, and VACUUM removes them.
    """
    log, first = root / name / "_delta_log", int(torn[0].stem)
    away = root / _DROPPED / name
    away.mkdir(parents=True, exist_ok=True)
    # It may name one of these checkpoints. Readers do without it.
    (log / _HINT).unlink(missing_ok=True)
    # The newest first: if this dies, the rest has no gap.
    for path in sorted(log.iterdir(), key=lambda path: path.name.lstrip("."), reverse=True):
        version = path.name.lstrip(".").partition(".")[0]
        if version.isdigit() and int(version) >= first:
            path.replace(away / path.name)
    _sync_folder(log)
    return torn


def _read_mark(root: Path) -> dict[str, int]:
    """The last versions that are on the disk; none if that is not known."""
    try:
        found = json.loads((root / _MARK).read_text(encoding="utf-8"))
        return {str(name): int(version) for name, version in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sync_file(path: Path) -> None:
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    try:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _actions_of(commit: Path) -> Iterator[dict[str, Any]]:
    """The actions of a commit. Raises `ValueError` for a torn or empty one."""
    # Not `splitlines`: texts of messages may hold other line separators, such as U+2028.
    lines = commit.read_bytes().rstrip(b"\n").split(b"\n")
    if lines == [b""]:
        raise ValueError(commit)
    for line in lines:
        yield json.loads(line)


def _is_whole_parquet(path: Path) -> bool:
    """Whether a file is there, and begins and ends as Parquet's do."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        if file.read(4) == b"PAR1":
            file.seek(-4, 2)
            return file.read(4) == b"PAR1"
    return False
