"""One endpoint's store and ledger, as Python sees them: each command a method that returns a value.

Nothing is printed and nobody is asked. All errors are `DuesweepError`s.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duesweep.api.auditing import audit_source
from duesweep.api.caller import given_by, require_reason
from duesweep.api.choosing import find_messages
from duesweep.api.engines import opened_engine
from duesweep.api.ledgers import command_ledger
from duesweep.api.look import look_at
from duesweep.api.maintaining import maintain_source
from duesweep.api.planning import look_ahead
from duesweep.api.replaying import ErrorsReport, replay
from duesweep.api.tables import read_table
from duesweep.audit.audit import AuditReport
from duesweep.change_messages import NewDue, cancel_chosen, reschedule_chosen
from duesweep.choose import open_look
from duesweep.config import Config
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.account import SweepReport
from duesweep.core.change import Command, CommandName, MessageFilter
from duesweep.core.errors import ConfigError
from duesweep.core.exhausted import ErrorFilter, ErrorRow
from duesweep.core.times import Moment
from duesweep.exhausted import ExhaustedMessages
from duesweep.listing import Listing, Question, list_waiting
from duesweep.maintain.report import MaintainReport
from duesweep.outlook import Outlook
from duesweep.replay import Target, find_errors
from duesweep.steer import CommandReport, Work, run_command
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCAN_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Duesweep:
    """What can be done with the endpoint of a configuration. `spark` is the session to use, also
    one of Spark Connect; None: the one that is there, or where Spark is needed, a new one.
    """

    config: Config
    spark: "SparkSession | None" = None

    def sweep(
        self, *, max_seconds: float | None = None, max_messages: int | None = None
    ) -> SweepReport | None:
        """Move the messages that are due now. None: nothing was due, and nothing was left over.

        A report does not raise where messages failed or work is left: see its `outcome`, `failed`,
        `exhausted` and `ledger_error`.
        """
        from duesweep.sweep.sweep import sweep  # noqa: PLC0415 - slow to load

        at = None if max_seconds is None else time.time() + max_seconds
        stop = Stop(at, max_messages)
        context = sweep_context(self.config)
        look = look_at(context, stop)
        if not look.has_work:
            return None
        on_spark = self.spark is not None or look.needs_spark
        with opened_engine(context, on_spark=on_spark, spark=self.spark) as engine:
            return sweep(engine, context, reach=look.reach(context), stop=stop)

    def plan(self) -> Outlook:
        """What a sweep would do now. Changes and locks nothing."""
        return look_ahead(sweep_context(self.config), spark=self.spark)

    def list(
        self,
        wanted: MessageFilter | None = None,
        *,
        most: int = 20,
        scan_limit: int = _SCAN_LIMIT,
    ) -> Listing:
        """The `most` first messages that wait, and how many come due how soon. Locks nothing."""
        with open_look(sweep_context(self.config).store) as session:
            now = session.horizon().server_time
            chosen, own = wanted or MessageFilter(), self.config.store.endpoint
            return list_waiting(session, Question(chosen, now, own, most, scan_limit))

    def cancel(
        self, wanted: MessageFilter, *, reason: str | None = None, everything: bool = False
    ) -> CommandReport:
        """Take messages out of the store, whole into the ledger. `everything` has to be said for a
        filter without conditions, a reason has to be given for more than one message.
        """
        _refuse_unclear(wanted.is_empty, everything=everything)
        return self._change(wanted, Command(CommandName.CANCEL, given_by(), reason))

    def reschedule(
        self,
        wanted: MessageFilter,
        *,
        to: Moment | None = None,
        by: timedelta | None = None,
        reason: str | None = None,
        everything: bool = False,
    ) -> CommandReport:
        """Give messages another Due: at `to`, or moved `by` a time. Otherwise as `cancel`."""
        if (to is None) == (by is None):
            raise ConfigError("`reschedule` takes one of `to` and `by`", advice="give one of them")
        _refuse_unclear(wanted.is_empty, everything=everything)
        due = NewDue(to) if by is None else NewDue(by=by)
        command = Command(CommandName.RESCHEDULE, given_by(), reason)
        return self._change(wanted, command, due)

    def errors(self, wanted: ErrorFilter | None = None) -> Sequence[ErrorRow]:
        """Messages that exhausted their attempts, and were neither replayed nor discarded since."""
        context = sweep_context(self.config)
        with command_ledger(context, self.spark) as ledger:
            messages = ExhaustedMessages(ledger, context.store.source)
            messages.check()
            return list(find_errors(messages, wanted or ErrorFilter()).rows.values())

    def replay(
        self,
        wanted: ErrorFilter,
        *,
        to: str | None = None,
        due: Moment | None = None,
        reason: str | None = None,
        everything: bool = False,
    ) -> ErrorsReport:
        """Deliver errors again, each once: to their destinations or `to` another one, at once or
        through the store when they are `due`. Otherwise as `cancel`.
        """
        _refuse_unclear(wanted.is_empty, everything=everything)
        command = Command(CommandName.REPLAY, given_by(), reason)
        return replay(self.config, wanted, Target(to, due), command, spark=self.spark)

    def audit(self) -> AuditReport:
        """Compare store, journal and ledger. What does not agree is in `suspects`."""
        return audit_source(sweep_context(self.config), self.spark)

    def maintain(self, *, forget: Sequence[str] = ()) -> MaintainReport:
        """Settle, remove what is too old, and tidy up the ledger's files. `forget` are sources
        whose delayed tables are gone.
        """
        return maintain_source(self.config, forget, self.spark)

    def table(self, name: str) -> Any:
        """A table of the ledger: a lazy Spark DataFrame if `spark` is given, else in Arrow."""
        context = sweep_context(self.config)
        return read_table(context.ledger_root, name, self.spark)

    def _change(
        self, wanted: MessageFilter, command: Command, due: NewDue | None = None
    ) -> CommandReport:
        context, own_queue = sweep_context(self.config), self.config.store.endpoint
        found = find_messages(context, own_queue, lambda _: wanted, _SCAN_LIMIT)
        require_reason(command.reason, len(found.lock_keys))
        limits = context.limits
        work: Work = (
            cancel_chosen(found.chosen, limits)
            if due is None
            else reschedule_chosen(found.chosen, limits, due)
        )
        with command_ledger(context, self.spark) as ledger:
            return run_command(context, ledger, command, work).with_gone(found.missing)


def _refuse_unclear(is_empty: bool, *, everything: bool) -> None:  # noqa: FBT001 - a question
    if is_empty and not everything:
        raise ConfigError(
            "A filter without conditions means all messages",
            advice="give it conditions, or everything=True",
        )
