"""The output while a sweep runs: a progress bar on stderr, on a terminal only."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from duesweep.core.errors import StoreError
from duesweep.stores.base import Store
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.sweep import Watch

_POLL_SECONDS = 0.5


def create_watch(store: Store) -> Watch | None:
    """What shows batches, rows and rows/s while a sweep dispatches.

    None if stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        return None

    def watch(run: SweepRun, found: int) -> AbstractContextManager[object]:
        return _progress_bar(store, run, found)

    return watch


@contextmanager
def _progress_bar(store: Store, run: SweepRun, found: int) -> Iterator[None]:
    done = threading.Event()
    bar = Progress(
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[batches]} batches, {task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("sweep", total=found, batches=0, rate=0.0)

    def poll() -> None:
        try:
            with store.open_driver() as session:
                is_done = False
                while not is_done:
                    # Again when it is done, so that the bar ends at the final number.
                    is_done = done.wait(_POLL_SECONDS)
                    batches, rows = session.sweeps.progress(run.sweep_id)
                    elapsed = bar.tasks[0].elapsed or _POLL_SECONDS
                    bar.update(task, completed=rows, batches=batches, rate=rows / elapsed)
        except StoreError:
            return  # only the display ends: the sweep itself reports the error

    watcher = threading.Thread(target=poll, daemon=True)
    with bar:
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
