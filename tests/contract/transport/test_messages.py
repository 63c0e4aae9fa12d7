"""One message at a time, on the tables of both servers."""

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from duesweep.core.errors import MessageError
from duesweep.core.message import MESSAGE_ID, Message
from duesweep.stores.messages import NewMessage
from duesweep.stores.store import SqlStore
from duesweep_testing.contract import StoreUnderTest
from duesweep_testing.contract.stores import steps
from duesweep_testing.sweeps import roll_back
from duesweep_transport.messages import Messages, one_message_at_a_time
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.sqlserver_server import SqlServerEndpoint

_HEADERS = {MESSAGE_ID: "6513270e-269e-0d37-f2a7-4de452e6b438", "Grüße": "\N{CHECK MARK}"}


class MessagesContract:
    """A stored message is fetched when it is due, and stays until it is removed."""

    def test_stored_message_is_fetched_as_it_was_stored(self, subject: StoreUnderTest) -> None:
        with _session(subject) as session:
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
        with _session(subject) as session:
            session.store(_new(subject, {"n": "2"}, seconds=-60))
            session.store(_new(subject, {"n": "1"}, seconds=-90))
            session.store(_new(subject, {"n": "3"}, seconds=-30))

            numbers = []
            while fetched := _fetch_and_remove(session):
                assert not isinstance(fetched.headers, MessageError)
                numbers.append(fetched.headers["n"])

        assert numbers == ["1", "2", "3"]

    def test_message_that_is_not_due_is_not_fetched(self, subject: StoreUnderTest) -> None:
        with _session(subject) as session:
            session.store(_new(subject, seconds=3600))

            assert session.fetch_next_due() is None

    def test_next_due_is_the_earliest_whether_it_is_past_or_not(
        self, subject: StoreUnderTest
    ) -> None:
        with _session(subject) as session:
            assert session.next_due() is None
            later, earlier = _new(subject, seconds=7200), _new(subject, seconds=3600)
            session.store(later)
            session.store(earlier)

            found = session.next_due()

        assert found is not None
        assert abs(found - earlier.due) <= subject.abilities.tick

    def test_message_is_removed_once(self, subject: StoreUnderTest) -> None:
        with _session(subject) as session:
            session.store(_new(subject))
            fetched = session.fetch_next_due()
            assert fetched is not None

            assert session.remove(fetched) is True
            assert session.remove(fetched) is False

        assert subject.waiting() == set()

    def test_removed_message_is_back_when_the_transaction_fails(
        self, subject: StoreUnderTest
    ) -> None:
        with _session(subject) as session:
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
        with _session(subject) as session, _session(subject) as other:
            session.store(_new(subject))
            with session.transaction():
                assert session.fetch_next_due() is not None
                with other.transaction():
                    assert other.fetch_next_due() is None
            with other.transaction():
                assert other.fetch_next_due() is not None

    def test_failure_is_counted_and_the_message_stays(self, subject: StoreUnderTest) -> None:
        with _session(subject) as session:
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
        with _session(subject) as session:
            session.store(_new(subject))
            fetched = session.fetch_next_due()
            assert fetched is not None
            session.remove(fetched)

            assert session.raise_failure_count(fetched) is False

        assert subject.attempts() == {}


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


def _fetch_and_remove(session: Messages) -> Message | None:
    with session.transaction():
        fetched = session.fetch_next_due()
        if fetched is not None:
            session.remove(fetched)
    return fetched


def _session(subject: StoreUnderTest) -> AbstractContextManager[Messages]:
    assert isinstance(subject.store, SqlStore)
    return one_message_at_a_time(subject.store)


class TestPostgreSql(MessagesContract):
    kind = "postgresql"

    @pytest.fixture
    def subject(self, open_endpoint: OpenEndpoint) -> Iterator[DelayedTableUnderTest]:
        with open_endpoint("America/New_York") as endpoint:
            yield DelayedTableUnderTest(endpoint.of_kind(self.kind).set_up("Billing"))


class TestTimeouts(TestPostgreSql):
    kind = "sql-persistence"


class TestSqlServer(MessagesContract):
    @pytest.fixture
    def subject(self, sqlserver_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(sqlserver_endpoint.set_up("Billing"))


class TestMsmq(MessagesContract):
    @pytest.fixture
    def subject(self, msmq_endpoint: SqlServerEndpoint) -> DelayedTableUnderTest:
        return DelayedTableUnderTest(msmq_endpoint.set_up("Billing"))
