"""What stores on SQL Server note of a message beyond the contract."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest

from duesweep.core.errors import QueueNotFoundError
from duesweep.core.headers import read_json
from duesweep.core.message import Exhausted
from duesweep_testing.builders import delayed_row
from duesweep_testing.contract.stores import change, steps
from support.contract.store_subjects import DelayedTableUnderTest
from support.sqlserver_server import SqlServerEndpoint


@pytest.fixture
def subject(
    request: pytest.FixtureRequest, sqlserver_endpoint: SqlServerEndpoint
) -> DelayedTableUnderTest:
    """A store of the kind that the test names."""
    kind: str = request.param
    return DelayedTableUnderTest(sqlserver_endpoint.of_kind(kind).set_up("Billing"))


@pytest.mark.parametrize("subject", ["sqlserver", "msmq", "sql-persistence"], indirect=True)
def test_headers_of_an_exhausted_message_are_journalled_as_json_where_they_can_be_read(
    subject: DelayedTableUnderTest,
) -> None:
    more = {"Grüße": "\N{CHECK MARK} <&>"}
    rows = [steps.row(subject, "Nowhere", more=more), steps.poison(subject)]
    run, [readable, poison] = steps.load(subject, *rows)

    with steps.batch(subject) as session:
        claim = steps.claim(subject, session, run, readable, poison)
        error = QueueNotFoundError("There is no queue")
        exhausted = tuple(Exhausted(m, error, None) for m in claim.messages)
        session.finish(run, 0, exhausted, claim.server_us)

    journal = [row for row in subject.endpoint.journal(run.sweep_id) if row.kind == "exhausted"]
    by_key = {row.message_key: row for row in journal}
    assert read_json(by_key[readable.key].headers)["Grüße"] == more["Grüße"]
    assert by_key[poison.key].headers is None
    for row in (readable, poison):
        assert by_key[row.key].headers_text == subject.stored_headers(row)


@pytest.mark.parametrize("subject", ["msmq"], indirect=True)
def test_row_of_the_msmq_store_counts_its_own_failures(subject: DelayedTableUnderTest) -> None:
    run, [failing, other] = steps.load(subject, steps.row(subject), steps.row(subject))
    endpoint = subject.endpoint
    endpoint.execute(f"UPDATE {endpoint.delayed} SET RetryCount = 2 WHERE Id = ?", failing.key)

    with steps.batch(subject) as session:
        claim = steps.claim(subject, session, run, failing)
        assert claim.messages == (subject.message(failing, attempts=2),)
        session.finish(run, 0, steps.failed(*claim.messages), claim.server_us)

    counts = endpoint.fetch(f"SELECT Id, RetryCount FROM {endpoint.delayed}")
    assert {row.Id: row.RetryCount for row in counts} == {failing.key: 3, other.key: 0}
    assert subject.attempts() == {failing.key: 3}


@pytest.mark.parametrize("subject", ["msmq", "sql-persistence"], indirect=True)
def test_message_without_a_time_is_never_due_and_noticed(
    subject: DelayedTableUnderTest,
) -> None:
    endpoint = subject.endpoint
    with subject.store.open_driver() as driver:
        assert driver.notices() == ()
    [timeless] = subject.load([delayed_row(due=subject.abilities.first_due)])
    endpoint.execute(f"UPDATE {endpoint.delayed} SET Time = NULL")

    with subject.store.open_driver() as driver:
        assert driver.due.find_work(driver.due.horizon()) is None
        (notice,) = driver.notices()

    assert "no Time" in notice.text
    assert subject.waiting() == {timeless.key}


@pytest.mark.parametrize("subject", ["sqlserver", "msmq", "sql-persistence"], indirect=True)
def test_message_that_failed_takes_no_claim_key_of_another_one_with_its_due(
    subject: DelayedTableUnderTest,
) -> None:
    due = subject.now() - steps.MINUTE
    run, rows = steps.load(subject, *[delayed_row(due=due) for _ in range(2)])

    with subject.store.open_task() as session:
        with session.transaction():
            claim = steps.claim(subject, session, run, rows[0])
            (failing,) = claim.messages
            # It is eligible again at once.
            session.finish(run, 0, steps.failed(failing, retry_seconds=0), claim.server_us)
            alone = steps.left_alone(session, [failing])
        with session.transaction():
            claim = steps.claim(subject, session, run, rows[1], left_alone=alone)
            (other,) = claim.messages

    assert {failing.key, other.key} == {row.key for row in rows}


@pytest.mark.parametrize("subject", ["sqlserver"], indirect=True)
def test_sweep_is_not_closed_beside_a_batch(subject: DelayedTableUnderTest) -> None:
    run, [row] = steps.load(subject, steps.row(subject))

    with subject.store.open_driver() as driver, ThreadPoolExecutor(1) as pool:
        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)
            closing = pool.submit(driver.sweeps.close, run.sweep_id, abandoned=True, remaining=0)
            # The session is open: without the batch, it would take milliseconds.
            assert wait([closing], timeout=2).not_done
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)
        assert closing.result(timeout=60)

    assert len(subject.journal(run)) == 1


@pytest.mark.parametrize("subject", ["sqlserver", "msmq"], indirect=True)
def test_new_due_is_not_before_the_one_that_was_asked_for(subject: DelayedTableUnderTest) -> None:
    (row,) = subject.load([steps.row(subject)])
    # Between two ticks of the column.
    due = subject.server_time().replace(microsecond=1_000) + timedelta(hours=30)

    change.reschedule(subject, row, due)

    (after,) = change.found(subject, row)
    assert after.due is not None
    assert due <= after.due < due + subject.abilities.tick
