"""Tests of what a claim returns."""

import pytest

from duesweep.core.errors import MessageError, UnreadableHeadersError
from duesweep.core.world import late_ms, micros
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep


class ClaimContract:
    """Messages as they are stored, ready to be delivered."""

    def test_claim_returns_messages_as_they_are_stored_in_the_order_of_their_due(
        self, subject: StoreUnderTest
    ) -> None:
        late = steps.row(subject, due=subject.now() - 2 * steps.MINUTE)
        later = steps.row(subject, None, due=subject.now() - 3 * steps.MINUTE, body=None)
        last = steps.row(subject, due=subject.now() - steps.MINUTE, body=b"")
        run, [last, late, later] = steps.load(subject, last, late, later)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, late, last, later)

        assert claim.messages == tuple(subject.message(row) for row in (later, late, last))

    def test_claim_without_keys_claims_nothing(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run)

        assert (claim.messages, claim.skipped, claim.gone, claim.later) == ((), 0, 0, 0)
        assert subject.waiting() == {row.key}

    def test_claim_returns_the_servers_time(self, subject: StoreUnderTest) -> None:
        due = subject.now() - steps.MINUTE
        run, [row] = steps.load(subject, steps.row(subject, due=due))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

        (claimed,) = claim.messages
        passed_us = claim.server_us - micros(run.horizon.server_time)
        assert 0 <= passed_us < 60_000_000
        late = late_ms(claimed, claim.server_us)
        assert late is not None
        assert 60_000 <= late < 120_000

    @pytest.mark.parametrize(
        "body",
        [None, b"", b"\0", bytes(range(256)), b"x" * 300_001],
        ids=["none", "empty", "one NUL", "every byte", "300 kB and one"],
    )
    def test_claim_returns_any_body_as_it_is(
        self, subject: StoreUnderTest, body: bytes | None
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject, body=body))

        with steps.batch(subject) as session:
            (claimed,) = steps.claim(subject, session, run, row).messages

        assert claimed.body == body

    def test_claim_returns_unreadable_headers_with_the_reason_and_as_they_are(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.poison(subject, text) for text in subject.unreadable]
        run, rows = steps.load(subject, *rows)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, *rows)

        claimed = {m.key: m for m in claim.messages}
        assert set(claimed) == {row.key for row in rows}
        for row in rows:
            message = claimed[row.key]
            assert isinstance(message.headers, UnreadableHeadersError)
            # Two errors are never equal. So all fields except the headers are compared.
            assert message._replace(headers={}) == subject.message(row)._replace(headers={})

    def test_claim_returns_headers_to_be_delivered_without_the_forward_destination(
        self, subject: StoreUnderTest
    ) -> None:
        more = {"Grüße": '\N{CHECK MARK} \\ " \t /', "Nullable": None, "Empty": ""}
        run, [row] = steps.load(subject, steps.row(subject, more=more))

        with steps.batch(subject) as session:
            (claimed,) = steps.claim(subject, session, run, row).messages

        assert claimed.destination == "Billing"
        assert claimed.headers_text == subject.message(row).headers_text
        assert "ForwardDestination" not in claimed.headers_text
        assert not isinstance(claimed.headers, MessageError)
        assert {name: claimed.headers[name] for name in more} == more

    def test_claim_of_more_than_a_batch_holds_names_the_claim_keys_that_it_has_not_reached(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.row(subject, body=b"x" * 3_000_000) for _ in range(6)]
        run, rows = steps.load(subject, *rows)
        claim_keys, claimed = subject.claim_keys(rows), []

        with subject.store.open_task() as session:
            while claim_keys:
                with session.transaction():
                    claim = session.claim(run, claim_keys)
                    session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)
                assert 0 < len(claim.messages) == len(claim_keys) - len(claim.unread)
                claimed += steps.keys(claim)
                claim_keys = list(claim.unread)

        assert sorted(claimed) == sorted(row.key for row in rows)
        assert subject.waiting() == set()

    def test_claim_keys_without_a_message_are_counted_by_their_reason(
        self, subject: StoreUnderTest
    ) -> None:
        rows = [steps.row(subject) for _ in range(5)]
        run, [gone, rescheduled, failed, free, also_free] = steps.load(subject, *rows)
        steps.fail(subject, run, failed)
        subject.reschedule(rescheduled.key, subject.now() + steps.MINUTE)
        other_run = open_sweep(subject.store)
        with steps.batch(subject) as session:
            taken = steps.claim(subject, session, other_run, gone)
            session.finish(other_run, 0, steps.delivered(*taken.messages), taken.server_us)

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, gone, rescheduled, failed, free, also_free)

        assert sorted(steps.keys(claim)) == sorted([free.key, also_free.key])
        assert claim.skipped == len(claim.unread) == 0
        # Where claim keys are Dues, a message that was rescheduled counts as gone.
        assert (claim.gone, claim.later) in {(1, 2), (2, 1)}

    def test_claim_keys_of_locked_rows_are_counted_as_skipped(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(6)])

        with steps.batch(subject) as other:
            held = steps.claim(subject, other, run, *rows[:4])
            with steps.batch(subject) as session:
                claim = steps.claim(subject, session, run, *rows)

        assert len(held.messages) == 4
        assert (len(claim.messages), claim.skipped) == (2, 4)
        assert claim.gone == claim.later == len(claim.unread) == 0
