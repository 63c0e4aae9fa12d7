"""What a sweep tells that has nothing to do, beside what tests/golden records."""

from datetime import UTC, datetime, timedelta

from duesweep.cli import documents
from duesweep.report.idle import NextDue, idle_sentence

_NOW = datetime(2026, 11, 23, 5, tzinfo=UTC)


def test_next_message_is_due_in_no_less_than_no_time_and_may_be_unknown() -> None:
    before, said = NextDue(_NOW - timedelta(seconds=1), _NOW), "nothing is to be sent now"

    assert "due in 0 ms, at 2026-11-23 04:59:59 UTC." in idle_sentence("s", before)
    assert idle_sentence("s", None) == f"s: {said}, and nothing is left to settle."


def test_document_has_the_time_in_iso_8601_or_null() -> None:
    known = documents.idle_document("s", NextDue(_NOW, _NOW))

    assert known["next_due"] == "2026-11-23T05:00:00+00:00"
    assert documents.idle_document("s")["next_due"] is None


def test_documents_of_all_ends_have_the_same_names() -> None:
    summary = documents.idle_document("s")
    for name in ("exit_code", "error", "next_due"):
        del summary[name]

    ended = documents.end_document(summary | {"outcome": "done"}, 0)

    assert ended.keys() == documents.idle_document("s").keys()
    assert ended["next_due"] is None
