"""Why messages failed, as the summary of their sweep tells it."""

from duesweep import wiring
from duesweep.core.account import FailureReason, SweepSummary
from duesweep.core.policy import Slicing
from duesweep.sweep.job import SweepContext
from duesweep.sweep.slice import ClaimKeys, dispatch_slice
from support.endpoint import Endpoint
from support.sweeps import job_of

NOWHERE = 'There is no queue table "public"."Nowhere'


def test_commonest_reasons_come_first_with_an_example(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    for name, messages in (("Nowhere1", 2), ("Nowhere2", 4), ("Nowhere3", 3), ("Nowhere4", 1)):
        endpoint.delay_many(messages, [name])
    endpoint.delay_many(5)

    summary = _swept(endpoint.context(), endpoint.waiting())

    assert (summary.dispatched, summary.failed) == (5, 10)
    assert [(f.count, f.destination) for f in summary.failures] == [
        (4, "Nowhere2"),
        (3, "Nowhere3"),
        (2, "Nowhere1"),
    ]
    assert summary.failures[0].reason.startswith(NOWHERE + "2")


def test_messages_out_of_attempts_are_counted_with_those_that_failed(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay_many(3, ["Nowhere"])
    config = endpoint.config(retry__max_attempts=1, retry__max_exhausted_per_sweep=2)

    summary = _swept(wiring.sweep_context(config), endpoint.waiting())

    assert (summary.exhausted, summary.failed, summary.over_limit) == (2, 1, 1)
    assert [(f.count, f.destination) for f in summary.failures] == [(3, "Nowhere")]


def test_poison_has_its_reason_and_no_destination(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay(headers="not JSON")

    (failure,) = _swept(endpoint.context(), endpoint.waiting()).failures

    assert (failure.count, failure.destination) == (1, None)
    assert "JSON" in failure.reason


def test_failures_of_earlier_sweeps_are_not_this_ones(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Nowhere")
    context = endpoint.context()
    _swept(context, endpoint.waiting())
    key = endpoint.delay()

    summary = _swept(context, [key])

    assert (summary.dispatched, summary.failed, summary.failures) == (1, 0, ())


def test_long_reason_is_cut(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    # A trigger's words are as long as it likes.
    endpoint.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '%', repeat('no ', 9000); END $$"
    )
    endpoint.execute(
        'CREATE TRIGGER refuse BEFORE INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION refuse()'
    )
    endpoint.delay()

    (failure,) = _swept(endpoint.context(), endpoint.waiting()).failures

    assert isinstance(failure, FailureReason)
    assert len(failure.reason) == 500


def _swept(context: SweepContext, claim_keys: list[str]) -> SweepSummary:
    """What a sweep's summary says that has dispatched these."""
    with context.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        session.plan(run, Slicing(1))
        job = job_of(context, run)
        dispatch_slice(job, 0, ClaimKeys(claim_keys, [1_000] * len(claim_keys), len(claim_keys)))
        session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
        session.seal(run.sweep_id)
        return session.summary(run.sweep_id)[0]
