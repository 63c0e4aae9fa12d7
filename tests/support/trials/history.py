"""The history of a trial, and whether it is right: store, queues, journal and ledger by message."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.operations.audit import judge_sweep
from support.trials.messages import Expected, Kind
from support.trials.world import ERROR_QUEUE, MOVED, OTHER_QUEUES, Copy, World

# The columns of `sweeps` that an audit reads.
_SWEEP_NUMBERS = (
    *("found", "claimed", "skipped", "gone", "eligible_later", "held", "left"),
    *("dispatched", "failed", "exhausted"),
)


@dataclass(frozen=True, slots=True)
class History:
    """The place of each message after the last sweep. `copies` are by queue's address, `ledger` by
    table.
    """

    expected: Sequence[Expected]
    waiting: frozenset[str]
    counters: Mapping[str, Any]
    copies: Mapping[str | None, Sequence[Copy]]
    ledger: Mapping[str, Sequence[Any]]
    unsettled: int
    moved: frozenset[str]

    @classmethod
    def of(cls, world: World) -> "History":
        """Read it. `moved` are the identities of messages that NServiceBus's mover took."""
        tables = ("tombstones", "retries", "errors", "sweeps")
        copies = {name: world.read_queue(name) for name in (*world.destinations, *OTHER_QUEUES)}
        return cls(
            tuple(world.expected),
            frozenset(world.endpoint.waiting()),
            world.endpoint.attempts(),
            copies,
            {name: world.ledger.rows(name) for name in tables},
            world.unsettled(),
            frozenset(copy.identity for copy in copies[MOVED]),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many messages were lost, doubled and early; and other faults, a sentence each."""

    lost: int
    doubled: int
    early: int
    untrue: Sequence[str]


def judge(history: History) -> Verdict:
    """Compare everything with the stored messages."""
    arrived = {
        name: Counter(copy.identity for copy in copies)
        for name, copies in history.copies.items()
        if name != ERROR_QUEUE
    }
    times: Counter[str] = sum(arrived.values(), Counter())
    of_kind = {kind: [one for one in history.expected if one.kind is kind] for kind in Kind}
    good = of_kind[Kind.GOOD]
    settled = Counter(row.message_key for row in history.ledger["errors"])
    kept = {one.identity: one.row.key in history.waiting for one in history.expected}
    lost = sum(not times[one.identity] and not kept[one.identity] for one in good)
    lost += sum(
        not settled[one.row.key] and not kept[one.identity] and one.identity not in history.moved
        for one in of_kind[Kind.BAD]
    )
    errors = Counter(copy.identity for copy in history.copies[ERROR_QUEUE])
    doubled = sum(count - 1 for count in times.values()) + sum(
        count - 1 for count in errors.values()
    )
    doubled += sum(bool(times[one.identity]) and kept[one.identity] for one in good)
    early = sum(
        bool(times[one.identity]) or not kept[one.identity] for one in of_kind[Kind.NOT_DUE]
    )
    return Verdict(lost, doubled, early, tuple(_untrue(history)))


def _untrue(history: History) -> Iterator[str]:
    yield from _wrong_copies(history)
    yield from _wrong_tombstones(history)
    yield from _wrong_errors(history)
    yield from _wrong_retries(history)
    yield from _wrong_sweeps(history)
    if history.unsettled:
        yield f"{history.unsettled} rows of the journal are not settled"


def _wrong_copies(history: History) -> Iterator[str]:
    """Messages in a wrong queue, or changed ones."""
    wanted = {one.identity: one for one in history.expected if one.kind is Kind.GOOD}
    for name, copies in history.copies.items():
        for copy in copies if name not in OTHER_QUEUES else ():
            one = wanted.get(copy.identity)
            if one is None or one.queue != name:
                yield f"queue {name} has {copy.identity}, which belongs to {one and one.queue}"
            elif not _is_whole(copy, one):
                yield f"body or headers of {copy.identity} were changed"


def _is_whole(copy: Copy, one: Expected) -> bool:
    if copy.headers is None:
        # RabbitMQ has no body that is null.
        return copy.body == (one.row.body or b"")
    return (copy.headers, copy.body) == (one.headers, one.row.body)


def _wrong_tombstones(history: History) -> Iterator[str]:
    """Each message that left by duesweep has one tombstone, and no other message has any."""
    rows = history.ledger["tombstones"]
    left = {
        one.row.key: one
        for one in history.expected
        if one.row.key not in history.waiting and one.identity not in history.moved
    }
    for key, count in Counter(row.message_key for row in rows).items():
        if count != 1:
            yield f"{key} has {count} tombstones"
        if key not in left:
            yield f"{key} has a tombstone, and did not leave by a sweep"
    found = {row.message_key: row.outcome for row in rows}
    for key, one in left.items():
        outcome = "dispatched" if one.kind is Kind.GOOD else "exhausted"
        if found.get(key) != outcome:
            yield f"{key} has the tombstone {found.get(key)}, and was {outcome}"


def _wrong_errors(history: History) -> Iterator[str]:
    """Each exhausted message is there once, whole."""
    expected = {one.row.key: one.row for one in history.expected}
    tombstones = history.ledger["tombstones"]
    exhausted = sorted(row.message_key for row in tombstones if row.outcome == "exhausted")
    rows = history.ledger["errors"]
    if sorted(row.message_key for row in rows) != exhausted:
        yield f"errors has {len(rows)} rows, and tombstones {len(exhausted)} exhausted messages"
    for row in rows:
        stored = expected.get(row.message_key)
        if stored is None:
            yield f"errors has {row.message_key}, which was not stored"
        elif (row.headers_text, bytes(row.body or b"")) != (stored.headers, stored.body or b""):
            yield f"errors has {row.message_key} with other headers or another body"


def _wrong_retries(history: History) -> Iterator[str]:
    """The copy of the counters: of bad messages that are in the store."""
    counted = {key: row.attempts for key, row in history.counters.items()}
    copied = {row.message_key: row.attempts for row in history.ledger["retries"]}
    if copied != counted:
        yield f"retries has {len(copied)} rows, and differs from {len(counted)} counters"
    bad = {one.row.key for one in history.expected if one.kind is Kind.BAD}
    if set(counted) != bad & history.waiting:
        yield f"counters are of {len(counted)} messages, and {len(bad & history.waiting)} failed"


def _wrong_sweeps(history: History) -> Iterator[str]:
    """By the rules of the command `audit`."""
    rows = {row.sweep_id: row for row in history.ledger["sweeps"]}
    written = Counter(row.sweep_id for row in history.ledger["sweeps"])
    outcomes = Counter((row.sweep_id, row.outcome) for row in history.ledger["tombstones"])
    errors = Counter(row.sweep_id for row in history.ledger["errors"])
    for sweep_id in {*written, *errors, *(sweep_id for sweep_id, _ in outcomes)}:
        counted = {
            "sweep_id": sweep_id,
            "sweeps": written[sweep_id],
            **{name: getattr(rows.get(sweep_id), name, None) for name in _SWEEP_NUMBERS},
            "dispatched_rows": outcomes[sweep_id, "dispatched"] + outcomes[sweep_id, "deferred"],
            "exhausted_rows": outcomes[sweep_id, "exhausted"],
            "error_rows": errors[sweep_id],
            **dict.fromkeys(("cancelled_rows", "other_rows", "change_rows"), 0),
        }
        for suspect in judge_sweep(counted):
            yield f"{suspect.check} of sweep {suspect.about}: {suspect.found}"
