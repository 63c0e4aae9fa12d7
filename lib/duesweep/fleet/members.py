"""The endpoints of a fleet, and work for each of them, side by side."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from duesweep.config import Config, EndpointSettings, load
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.errors import DuesweepError, QueueError, StoreError, TransactionLostError
from duesweep.sweep.job import SweepContext

T = TypeVar("T")

# So many endpoints of one database at once: a sweep has up to three connections, and waits for the
# database most of the time.
_AT_ONCE = 4
_MOST_THREADS = 32
# A thread that has seen so many endpoints of a database fail, one after another, gives it up.
_GIVES_UP_AFTER = 2


@dataclass(frozen=True, slots=True)
class Member:
    """An endpoint of a fleet. `server` is the same for all of one database."""

    source: str
    config: Config
    context: SweepContext
    server: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why nothing more could be done for an endpoint. It costs no other one anything."""

    source: str
    error: DuesweepError


def members_of(
    settings: Sequence[EndpointSettings | None], overrides: Sequence[str]
) -> tuple[list[Member], list[Failure]]:
    """The endpoints, and those whose settings are wrong; None: that of the default file."""
    members: list[Member] = []
    failures: list[Failure] = []
    for each in settings:
        try:
            config = load(each, overrides)
            context = sweep_context(config)
        except DuesweepError as error:
            failures.append(Failure(each.label if each else "duesweep.toml", error))
        else:
            server = config.store.dsn.get_secret_value()
            members.append(Member(context.store.source, config, context, server))
    return members, failures


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """Work for one endpoint."""

    member: Member
    work: Callable[[], T]


def side_by_side(jobs: Sequence[Job[T]]) -> list[T | Failure]:
    """Do the work of all, some at once, and return the results in the order of the jobs.

    Where endpoints of a database fail one after another because it is out of reach, its others are
    not tried: each would wait as long for nothing. An error that is not duesweep's own is raised,
    after all others have ended.
    """
    servers: dict[str, deque[tuple[Job[T], Future[T | Failure]]]] = {}
    results: list[Future[T | Failure]] = []
    for job in jobs:
        results.append(Future())
        servers.setdefault(job.member.server, deque()).append((job, results[-1]))
    most = max(1, min(_AT_ONCE, _MOST_THREADS // max(1, len(servers))))
    threads = min(_MOST_THREADS, sum(min(most, len(waiting)) for waiting in servers.values()))
    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="duesweep fleet") as pool:
        for _ in range(most):
            for waiting in servers.values():
                pool.submit(_work_off, waiting)
    return [result.result() for result in results]


def _work_off(waiting: "deque[tuple[Job[T], Future[T | Failure]]]") -> None:
    lost = 0
    while True:
        try:
            job, result = waiting.popleft()
        except IndexError:
            return
        try:
            result.set_result(job.work())
            lost = 0
        except DuesweepError as error:
            result.set_result(Failure(job.member.source, error))
            lost = lost + 1 if _is_store_lost(error) else 0
            if lost == _GIVES_UP_AFTER:
                _give_up(waiting, error)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            result.set_exception(error)


def _give_up(waiting: "deque[tuple[Job[T], Future[T | Failure]]]", error: DuesweepError) -> None:
    untried = StoreError(
        f"It was not tried, since other endpoints of the same database failed: {error.text}",
        transient=True,
        advice=error.advice,
    )
    with suppress(IndexError):
        while True:
            job, result = waiting.popleft()
            result.set_result(Failure(job.member.source, untried))


def _is_store_lost(error: DuesweepError) -> bool:
    # A lost transaction says that the database answers.
    if isinstance(error, QueueError | TransactionLostError) or not isinstance(error, StoreError):
        return False
    return error.transient
