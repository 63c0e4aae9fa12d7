"""Tests of the driver's session: how far it looks, and the slices of its plans."""

from dataclasses import replace
from datetime import timedelta, timezone
from itertools import product

import pytest

from duesweep.core.policy import Slicing
from duesweep.stores.due import Due, Upcoming
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest

_HOUR = timedelta(hours=1)
_TEN_YEARS = 24 * 3_650 * _HOUR
_MESSAGES = 25


class PlanContract:
    """A driver's session finds the messages within a horizon, and cuts them into equal slices."""

    def test_horizon_is_counted_and_planned_alike_however_far_it_reaches(
        self, subject: StoreUnderTest
    ) -> None:
        _load_due_in(subject, -1, 1, 3, 24 * 365 * 9)
        with subject.store.open_driver() as session:
            now = session.due.horizon()
            from_now = now.cut_off(now.server_time)
            # An instant is the same in each zone.
            elsewhere = timezone(-5 * _HOUR)
            in_two_hours = now.cut_off((now.server_time + 2 * _HOUR).astimezone(elsewhere))
            reaches = {
                "now": now,
                "two hours": now.looking_ahead(2 * _HOUR),
                "two hours, without those due now": from_now.looking_ahead(2 * _HOUR),
                "ten years, from two hours on": in_two_hours.looking_ahead(_TEN_YEARS),
                "ten years": now.looking_ahead(_TEN_YEARS),
            }
            found = {}
            for name, reach in reaches.items():
                plan = session.due.plan(reach, Slicing(2))
                slices = range(len(plan.planned))
                keys = [read_claim_keys(session.due.claim_keys(plan, n)).keys for n in slices]
                read = sum(map(len, keys))
                found[name] = (plan.found, read, session.due.count_pending(reach))
            stored = session.due.count_stored(None), session.due.count_stored(in_two_hours.since)

        assert found == {
            "now": (1, 1, 1),
            "two hours": (2, 2, 2),
            "two hours, without those due now": (1, 1, 1),
            "ten years, from two hours on": (2, 2, 2),
            "ten years": (4, 4, 4),
        }
        assert stored == (4, 2)

    def test_work_is_sought_from_the_start_of_the_horizon_on(self, subject: StoreUnderTest) -> None:
        _load_due_in(subject, -3)
        with subject.store.open_driver() as session:
            now = session.due.horizon()
            since = now.before - 2 * _HOUR
            from_later = replace(now, since=since)
            assert session.due.find_work(now) is not None
            assert session.due.find_work(from_later) is None

            _load_due_in(subject, -1)
            found = session.due.find_work(from_later)

        assert found is not None
        assert found.since is None or since < found.since < now.before

    def test_next_due_is_the_first_beyond_the_horizon(self, subject: StoreUnderTest) -> None:
        with subject.store.open_driver() as session:
            if type(session.due).next_due is Due.next_due:
                pytest.skip("the store does not find the next Due cheaply")
            if subject.abilities.has_infinite_due:
                subject.load([delayed_row(due="infinity")])
            assert session.due.next_due(session.due.horizon()) == Upcoming()
            instant = subject.server_time()
            _load_due_in(subject, -1)
            assert session.due.next_due(session.due.horizon()) == Upcoming()
            _load_due_in(subject, 3, 2, 24 * 365 * 9)

            found = session.due.next_due(session.due.horizon()).due

        assert found is not None
        assert found.utcoffset() == timedelta()
        assert abs(found - instant - 2 * _HOUR) < steps.MINUTE

    def test_slices_are_equal_and_hold_each_claim_key_once(self, subject: StoreUnderTest) -> None:
        """Also where several slices have one Due only, or one message."""
        rows = _load_with_shared_dues(subject)
        for number, planned in (4, [7, 7, 7, 4]), (8, [4] * 6 + [1]), (_MESSAGES, [1] * _MESSAGES):
            with subject.store.open_driver() as session:
                plan = session.due.plan(session.due.horizon(), Slicing(number))
                slices = [
                    read_claim_keys(session.due.claim_keys(plan, number))
                    for number in range(len(plan.planned))
                ]

            assert [*plan.planned] == planned
            assert [keys.total for keys in slices] == [len(keys.keys) for keys in slices] == planned
            assert all(keys.fault is None for keys in slices)
            read = sorted(key for keys in slices for key in keys.keys)
            # In a plan the place of the message may follow them.
            for found, wanted in zip(read, sorted(subject.claim_keys(rows)), strict=True):
                assert found.startswith(wanted)
            assert all(size > 0 for keys in slices for size in keys.sizes)

    def test_part_of_a_plan_has_its_slices_in_another_session(
        self, subject: StoreUnderTest
    ) -> None:
        rows = _load_with_shared_dues(subject)
        with subject.store.open_driver() as session:
            plan = session.due.plan(session.due.horizon(), Slicing(4))
        parts = [plan.part(0, 1), plan.part(1, 4).part(0, 2), plan.part(3, 4)]
        with subject.store.open_driver() as session:
            slices = [
                read_claim_keys(session.due.claim_keys(part, number)).keys
                for part in parts
                for number in range(len(part.planned))
            ]

        assert [part.planned for part in parts] == [(7,), (7, 7), (4,)]
        read = sorted(key for keys in slices for key in keys)
        assert [len(keys) for keys in slices] == [7, 7, 7, 4]
        for wanted, found in zip(sorted(subject.claim_keys(rows)), read, strict=True):
            assert found.startswith(wanted)

    def test_plan_at_once_has_all_messages_or_is_none(self, subject: StoreUnderTest) -> None:
        rows = _load_with_shared_dues(subject)
        with subject.store.open_driver() as session:
            horizon = session.due.horizon()
            few, plan, none = (
                session.due.plan_at_once(at, Slicing(1), most)
                for at, most in (
                    (horizon, _MESSAGES - 1),
                    (horizon, _MESSAGES),
                    (horizon.looking_ahead(-_TEN_YEARS), 0),
                )
            )
            assert plan is not None
            keys = read_claim_keys(session.due.claim_keys(plan, 0))

        assert few is None
        assert none is not None
        assert (plan.planned, none.found) == ((_MESSAGES,), 0)
        for found, wanted in zip(sorted(keys.keys), sorted(subject.claim_keys(rows)), strict=True):
            assert found.startswith(wanted)

    def test_slices_of_a_sweep_are_counted_on(self, subject: StoreUnderTest) -> None:
        _load_with_shared_dues(subject)
        with subject.store.open_driver() as session:
            run = session.sweeps.open(session.due.horizon())
            plan = session.due.plan(run.horizon, Slicing(4))
            before = [
                session.sweeps.note_slices(run, part) for part in (plan.part(0, 3), plan.part(3, 4))
            ]
            session.sweeps.close(run.sweep_id, abandoned=False, remaining=9)
            summary, _ = session.journal.summary(run.sweep_id)

        assert before == [0, 3]
        assert (summary.found, summary.left, summary.outcome) == (25, 25, "incomplete")

    def test_server_counts_slices_as_the_driver_does(self, subject: StoreUnderTest) -> None:
        _load_with_shared_dues(subject)
        with subject.store.open_driver() as session:
            horizon = session.due.horizon()
            for slicing in (Slicing(*of) for of in product((1, 3, 40), (1, 7), (2, 9, 25))):
                size = -(-_MESSAGES // slicing.count(_MESSAGES))
                rest = [_MESSAGES % size] if _MESSAGES % size else []
                planned = session.due.plan(horizon, slicing).planned
                assert planned == (*[size] * (_MESSAGES // size), *rest), slicing


def _load_due_in(subject: StoreUnderTest, *hours: int) -> None:
    now = subject.now()
    subject.load([steps.row(subject, due=now + hour * _HOUR) for hour in hours])


def _load_with_shared_dues(subject: StoreUnderTest) -> list[DelayedRow]:
    past = subject.now() - _HOUR
    dues = [past + number // 10 * steps.MINUTE for number in range(_MESSAGES)]
    return subject.load([steps.row(subject, due=due) for due in dues])
