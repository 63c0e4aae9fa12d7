"""Tests of which messages a claim key finds."""

from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest


class ClaimKeyContract:
    """A claim key finds one message of its Due, not more."""

    def test_claim_keys_of_one_due_lead_to_as_many_messages(self, subject: StoreUnderTest) -> None:
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(20)])
        claim_keys = subject.claim_keys(rows)

        with steps.batch(subject) as session:
            few = steps.keys(session.claim(run, claim_keys[:7]))
        with steps.batch(subject) as session:
            all_of_them = steps.keys(session.claim(run, claim_keys))

        assert len(few) == len(set(few)) == 7
        assert set(few) <= {row.key for row in rows}
        assert sorted(all_of_them) == sorted(row.key for row in rows)

    def test_claim_leaves_rows_between_its_claim_keys(self, subject: StoreUnderTest) -> None:
        rows = [steps.row(subject) for _ in range(9)]
        run, rows = steps.load(subject, *rows)
        wanted = [rows[6], rows[0], rows[2], rows[8]]

        claimed = steps.claimable(subject, run, *wanted)

        assert sorted(claimed) == sorted(row.key for row in wanted)

    def test_claim_keys_of_dues_that_several_share_lead_to_as_many_of_each(
        self, subject: StoreUnderTest
    ) -> None:
        now, shares = subject.now(), {1: 3, 2: 1, 3: 4, 4: 2}
        dues = {n: now - n * steps.MINUTE for n in shares}
        rows = [delayed_row(due=dues[n]) for n in shares for _ in range(5)]
        run, rows = steps.load(subject, *rows)
        wanted = [row for n, count in shares.items() for row in rows[5 * n - 5 :][:count]]

        claimed = set(steps.claimable(subject, run, *wanted[::-1]))

        counts = [sum(row.key in claimed for row in rows[5 * n - 5 :][:5]) for n in shares]
        assert counts == list(shares.values())

    def test_claim_key_of_a_claimed_message_that_is_released_finds_it_again(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(3)])

        with subject.store.open_task() as session:
            with session.transaction():
                claim = steps.claim(subject, session, run, *rows)
                first, *others = claim.messages
                claim_keys = [session.claim_key(message) for message in others]
                session.finish(run, 0, steps.delivered(first), claim.server_us)
            with session.transaction():
                again = session.claim(run, claim_keys)

        assert again.messages == tuple(others)

    def test_claim_key_of_an_eligible_message_that_is_released_finds_it_again(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, row)
        subject.end_back_off()

        with subject.store.open_task() as session:
            with session.transaction():
                (message,) = steps.claim(subject, session, run, row).messages
            with session.transaction():
                again = session.claim(run, [session.claim_key(message)])

        assert again.messages == (message,)

    def test_messages_left_alone_are_left_to_other_sessions(self, subject: StoreUnderTest) -> None:
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(6)])

        with subject.store.open_task() as session:
            with session.transaction():
                excluded = steps.claim(subject, session, run, *rows[:2]).messages
                alone = steps.left_alone(session, excluded)
            left = [row for row in rows if row.key not in {m.key for m in excluded}]
            for wanted in (left[:1], left):
                with session.transaction():
                    claim = steps.claim(subject, session, run, *wanted, left_alone=alone)
                    claimed = steps.keys(claim)
                assert len(claimed) == len(wanted)
                assert set(claimed) <= {row.key for row in left}

        assert sorted(steps.claimable(subject, run, *rows)) == sorted(row.key for row in rows)

    def test_messages_that_are_left_alone_later_are_left_alone_from_then_on(
        self, subject: StoreUnderTest
    ) -> None:
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(6)])
        left = {row.key: row for row in rows}
        alone: dict[str, set[str]] = {}

        with subject.store.open_task() as session:
            while left:
                wanted = list(left.values())[:2]
                with session.transaction():
                    claim = steps.claim(subject, session, run, *wanted, left_alone=alone)
                    claimed = claim.messages
                    for claim_key, keys in steps.left_alone(session, claimed).items():
                        alone.setdefault(claim_key, set()).update(keys)
                assert len(claimed) == 2
                # Raises if a message comes a second time.
                for message in claimed:
                    del left[message.key]

    def test_messages_that_are_left_alone_no_more_are_found_by_their_claim_keys(
        self, subject: StoreUnderTest
    ) -> None:
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(4)])

        with subject.store.open_task() as session:
            with session.transaction():
                claimed = steps.claim(subject, session, run, *rows).messages
                taken = claimed[1:3]
                claim_keys = [session.claim_key(message) for message in taken]
                rest = steps.left_alone(session, [m for m in claimed if m not in taken])
            with session.transaction():
                found = steps.keys(session.claim(run, claim_keys, rest))

        assert sorted(found) == sorted(message.key for message in taken)

    def test_what_one_session_left_alone_another_one_can_leave_alone(
        self, subject: StoreUnderTest
    ) -> None:
        due = subject.now() - steps.MINUTE
        run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(4)])
        with subject.store.open_task() as first, first.transaction():
            claimed = steps.claim(subject, first, run, *rows[:2]).messages
            excluded = steps.left_alone(first, claimed)

        left = [row for row in rows if row.key not in {m.key for m in claimed}]
        with subject.store.open_task() as session, session.transaction():
            claim = steps.claim(subject, session, run, *left, left_alone=excluded)
            found = steps.keys(claim)

        assert sorted(found) == sorted(row.key for row in left)
