"""What a sweep tells that has nothing to do."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.api import look as looking
from duesweep.cli import documents
from duesweep.errors import StoreError
from duesweep.report.idle import NextDue, idle_sentence
from duesweep.stores.values import Horizon

_NOW = datetime(2026, 11, 23, 5, tzinfo=UTC)
_LATER = _NOW + timedelta(hours=3, minutes=12)


class _Session:
    """The driver's session of a store that has nothing to do."""

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *error: object) -> None: ...

    def check(self) -> None: ...

    def has_work(self, _: timedelta) -> bool:
        return False

    def notices(self) -> tuple[()]:
        return ()

    def horizon(self) -> Horizon:
        # The writers' clock is an hour ahead of the server's.
        return Horizon(_NOW + timedelta(hours=1), _NOW)


class _SessionThatKnows(_Session):
    def next_due(self, horizon: Horizon) -> datetime | None:
        return horizon.server_time + timedelta(hours=3, minutes=12)


class _SlowSession(_Session):
    def next_due(self, _: Horizon) -> datetime | None:
        raise StoreError("The statement took too long", transient=True)


class _EmptySession(_Session):
    def next_due(self, _: Horizon) -> datetime | None:
        return None


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (_SessionThatKnows(), NextDue(_LATER, _NOW)),
        (_EmptySession(), None),
        (_SlowSession(), None),
        (_Session(), None),
    ],
)
def test_look_at_an_idle_store_finds_its_next_message_if_the_store_can_tell(
    session: _Session, found: NextDue | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "refuse_outdated", lambda _: None)
    context: Any = SimpleNamespace(
        store=SimpleNamespace(open_driver=lambda: session),
        queue=SimpleNamespace(check=lambda _: None),
        error_queue=None,
        look_ahead=SimpleNamespace(longest_seconds=0),
    )

    look = looking.look_at(context)

    assert (look.has_work, look.next_due) == (False, found)


def test_sentence_says_how_long_it_is_by_the_servers_clock_and_when() -> None:
    assert idle_sentence("s", NextDue(_LATER, _NOW)) == (
        "s: nothing is to be sent now, and nothing is left to settle; the next message is due in "
        "3 h 12 min, "
        "at 2026-11-23 08:12:00 UTC."
    )


def test_message_that_came_due_meanwhile_is_due_in_no_time_and_not_in_less() -> None:
    said = idle_sentence("s", NextDue(_NOW - timedelta(seconds=1), _NOW))

    assert "due in 0 ms, at 2026-11-23 04:59:59 UTC." in said


def test_sentence_without_a_next_message_ends_earlier() -> None:
    assert (
        idle_sentence("s", None) == "s: nothing is to be sent now, and nothing is left to settle."
    )


def test_document_has_the_time_in_iso_8601_or_null() -> None:
    known = documents.idle_document("s", NextDue(_LATER, _NOW))

    assert known["next_due"] == "2026-11-23T08:12:00+00:00"
    assert documents.idle_document("s")["next_due"] is None


def test_documents_of_all_ends_have_the_same_names() -> None:
    summary = documents.idle_document("s")
    for name in ("exit_code", "error", "next_due"):
        del summary[name]

    ended = documents.end_document(summary | {"outcome": "done"}, 0)

    assert ended.keys() == documents.idle_document("s").keys()
    assert ended["next_due"] is None
