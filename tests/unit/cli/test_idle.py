"""What a sweep tells that has nothing to do."""

from datetime import UTC, datetime, timedelta

from duesweep.cli import documents
from duesweep.report.idle import NextDue, idle_sentence

_NOW = datetime(2026, 11, 23, 5, tzinfo=UTC)
_LATER = _NOW + timedelta(hours=3, minutes=12)


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
