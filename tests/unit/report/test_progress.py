"""The progress bar of a sweep."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duesweep.report.progress import create_watch


class _Store:
    """Of a sweep that has done `rows` messages."""

    rows = 0

    @contextmanager
    def open_driver(self) -> Iterator[Any]:
        yield self

    def progress(self, _: object) -> tuple[int, int]:
        return 1, self.rows


class _Run:
    sweep_id = "5"


@pytest.mark.parametrize(("done", "shown"), [(200, "200/200"), (124, "124/200")])
def test_bar_ends_at_what_was_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, done: int, shown: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    store: Any = _Store()
    run: Any = _Run()
    watch = create_watch(store)
    assert watch is not None

    with watch(run, 200):
        store.rows = done

    assert re.findall(r"\d+/200", capsys.readouterr().err)[-1] == shown
