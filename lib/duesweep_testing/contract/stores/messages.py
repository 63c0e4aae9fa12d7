"""Tests of the session for one message at a time."""

import uuid
from datetime import timedelta

import pytest

from duesweep.core.errors import ConfigError, MessageError
from duesweep.core.message import MESSAGE_ID, Message
from duesweep.stores.base import Store, TransactionMode
from duesweep.stores.messages import MessageSession, NewMessage
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import roll_back

_HEADERS = {MESSAGE_ID: "6513270e-269e-0d37-f2a7-4de452e6b438", "Grüße": "\N{CHECK MARK}"}


class MessageContract:
    """A stored message is fetched when it is due, and stays until it is removed."""

    def test_stored_message_is_fetched_as_it_was_stored(self, subject: StoreUnderTest) -> None:
        with subject.store.open_messages() as session:
            key = session.store(_new(subject, _HEADERS | {"Nullable": None}, body=b"\0\xff"))

            with session.transaction():
                fetched = session.fetch_next_due()

        assert fetched is not None
        assert subject.waiting() == {key} == {fetched.key}
        assert not isinstance(fetched.headers, MessageError)
        assert fetched.headers.items() >= (_HEADERS | {"Nullable": None}).items()
        assert (fetched.destination, fetched.body) == ("Billing", b"\0\xff")
        assert fetched.attempts == 0

    def test_oldest_message_is_the_next(self, subject: StoreUnderTest) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject, {"n": "2"}, seconds=-60))
            session.store(_new(subject, {"n": "1"}, seconds=-90))
            session.store(_new(subject, {"n": "3"}, seconds=-30))

            numbers = []
            while fetched := _fetch_and_remove(session):
                assert not isinstance(fetched.headers, MessageError)
                numbers.append(fetched.headers["n"])

        assert numbers == ["1", "2", "3"]

    def test_message_that_is_not_due_is_not_fetched(self, subject: StoreUnderTest) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject, seconds=3600))

            assert session.fetch_next_due() is None

    def test_next_due_is_the_earliest_whether_it_is_past_or_not(
        self, subject: StoreUnderTest
    ) -> None:
        with subject.store.open_messages() as session:
            assert session.next_due() is None
            later, earlier = _new(subject, seconds=7200), _new(subject, seconds=3600)
            session.store(later)
            session.store(earlier)

            found = session.next_due()

        assert found is not None
        assert abs(found - earlier.due) <= subject.abilities.tick

    def test_message_is_removed_once(self, subject: StoreUnderTest) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject))
            fetched = session.fetch_next_due()
            assert fetched is not None

            assert session.remove(fetched) is True
            assert session.remove(fetched) is False

        assert subject.waiting() == set()

    def test_removed_message_is_back_when_the_transaction_fails(
        self, subject: StoreUnderTest
    ) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject))
            with roll_back(session):
                fetched = session.fetch_next_due()
                assert fetched is not None
                assert session.remove(fetched)

        assert subject.waiting() == {fetched.key}

    def test_fetched_message_is_skipped_by_others_until_the_transaction_ends(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        store = subject.store
        with store.open_messages() as session, store.open_messages() as other:
            session.store(_new(subject))
            with session.transaction():
                assert session.fetch_next_due() is not None
                with other.transaction():
                    assert other.fetch_next_due() is None
            with other.transaction():
                assert other.fetch_next_due() is not None

    def test_failure_is_counted_and_the_message_stays(self, subject: StoreUnderTest) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject))
            for count in (1, 2):
                with session.transaction():
                    fetched = session.fetch_next_due()
                    assert fetched is not None
                    assert session.raise_failure_count(fetched) is True
                subject.end_back_off()
                assert subject.attempts() == {fetched.key: count}

            with session.transaction():
                again = session.fetch_next_due()

        assert again is not None
        assert again.attempts == 2

    def test_failure_of_a_message_that_is_gone_is_not_counted(
        self, subject: StoreUnderTest
    ) -> None:
        with subject.store.open_messages() as session:
            session.store(_new(subject))
            fetched = session.fetch_next_due()
            assert fetched is not None
            session.remove(fetched)

            assert session.raise_failure_count(fetched) is False

        assert subject.attempts() == {}

    def test_set_up_can_be_repeated_and_keeps_what_is_there(self, subject: StoreUnderTest) -> None:
        if type(subject.store).set_up_infrastructure is Store.set_up_infrastructure:
            pytest.skip("The store expects its tables to exist")
        [row] = subject.load([steps.row(subject)])

        subject.store.set_up_infrastructure()

        assert subject.waiting() == {row.key}

    def test_mode_that_takes_a_distributed_transaction_is_refused(
        self, subject: StoreUnderTest
    ) -> None:
        subject.store.initialise(subject.own_queue, TransactionMode.RECEIVE_ONLY)

        with pytest.raises(ConfigError, match="transaction-scope"):
            subject.store.initialise(subject.own_queue, TransactionMode.TRANSACTION_SCOPE)


def _new(
    subject: StoreUnderTest,
    headers: dict[str, str | None] | None = None,
    *,
    seconds: float = -60,
    body: bytes | None = b"{}",
) -> NewMessage:
    """A message that becomes due in `seconds`."""
    due = subject.server_time() + timedelta(seconds=seconds)
    return NewMessage("Billing", dict(headers or {MESSAGE_ID: str(uuid.uuid4())}), body, due)


def _fetch_and_remove(session: MessageSession) -> Message | None:
    with session.transaction():
        fetched = session.fetch_next_due()
        if fetched is not None:
            session.remove(fetched)
    return fetched
