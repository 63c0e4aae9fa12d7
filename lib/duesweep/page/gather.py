"""Asks store, ledger and doctor what the page shows. What cannot be read is said on the page."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from duesweep.api.ledgers import reading_ledger
from duesweep.config import Config
from duesweep.core.errors import DuesweepError
from duesweep.core.finding import Finding, is_to_mend, worst_first
from duesweep.doctor.examine import examine_services
from duesweep.page.facts import History, SourceFacts
from duesweep.page.history import read_history
from duesweep.page.waiting import read_waiting
from duesweep.sweep.job import SweepContext

T = TypeVar("T")


def gather(config: Config, context: SweepContext, days: int) -> SourceFacts:
    """What is known of an endpoint; its history of so many days. Changes nothing."""
    now, problems = datetime.now(UTC), list[str]()
    source = context.store.source

    def history() -> History:
        with reading_ledger(context) as ledger:
            return read_history(ledger, source, now - timedelta(days=days), now)

    return SourceFacts(
        source=source,
        waiting=_try(lambda: read_waiting(context.store), "The store", problems),
        history=_try(history, "The ledger", problems),
        findings=_try(lambda: _findings(config), "What the doctor looks at", problems) or (),
        problems=problems,
    )


def _findings(config: Config) -> Sequence[Finding]:
    from duesweep.doctor.examine import examination  # noqa: PLC0415 - loads drivers

    findings, _ = examine_services(examination(config))
    return worst_first([finding for finding in findings if is_to_mend(finding)])


def _try(read: Callable[[], T], what: str, problems: list[str]) -> T | None:
    try:
        return read()
    except DuesweepError as error:
        problems.append(f"{what} could not be read: {error}")
        return None
