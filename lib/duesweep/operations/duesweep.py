"""One endpoint's store and ledger, as Python sees them: each command a method that returns a value.

Nothing is printed, and no question is asked. All errors are `DuesweepError`s.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters.endpoint import handover_context, sweep_context
from duesweep.core.change import SCAN_LIMIT, CommandName, MessageFilter
from duesweep.core.errors import ConfigError, Problem
from duesweep.core.exhausted import ErrorFilter
from duesweep.core.times import Moment
from duesweep.operations.messages import Tell, tell_nobody
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.ledger.ledger import Ledger
    from duesweep.operations.audit import AuditReport
    from duesweep.operations.change import Changed, Work
    from duesweep.operations.doctor import Diagnosis
    from duesweep.operations.errors import (
        ErrorListing,
        ExhaustedMessages,
        GroupListing,
        ShownErrors,
    )
    from duesweep.operations.handover import Aborted, Handover, Preview
    from duesweep.operations.look import DestinationOutlook, Outlook
    from duesweep.operations.maintain import MaintainReport
    from duesweep.operations.messages import AnyChosen, Chosen, Listing, Show, Shown, Wanted
    from duesweep.operations.pauses import Pauses, Resumed
    from duesweep.operations.replay import ChosenErrors
    from duesweep.operations.restore import ChosenCancelled
    from duesweep.operations.run import Run
    from duesweep.operations.setup import SetUp
    from duesweep.operations.status import Status
    from duesweep.sweep.sweep import Watch

__all__ = ["Duesweep", "Stop", "load_config"]


@dataclass(frozen=True)
class Duesweep:
    """The operations on the endpoint of a configuration. `spark` is the session to use, also
    one of Spark Connect; None: the existing one, or if Spark is needed, a new one.
    `options` name it on a command line.

    A command that changes messages is two methods: the choice returns a value that can be shown,
    and the act takes that value, or a filter. `stop` ends an act between two batches, and `tell`
    gets the progress.
    """

    config: Config
    spark: "SparkSession | None" = None
    options: Sequence[str] = ()

    @cached_property
    def context(self) -> SweepContext:
        """The configured store, queues, ledger and limits."""
        return sweep_context(self.config)

    @property
    def source(self) -> str:
        """The stable name of its store."""
        return self.context.store.source

    def sweep(self, *, max_seconds: float | None = None, max_messages: int | None = None) -> "Run":
        """Move the messages that are due now. If messages failed or work is left, this does not
        raise: see the run's `exit_code`, `error` and `report`. `report` None: nothing was due.
        """
        from duesweep.operations.run import run_once

        at = None if max_seconds is None else time.time() + max_seconds
        return run_once(self, Stop(at, max_messages), spark=self.spark)

    def plan(
        self, *, show: "Callable[[Sequence[DestinationOutlook]], None] | None" = None
    ) -> "Outlook":
        """A preview of a sweep now. Changes and locks nothing. `show` gets the destinations before
        all messages are counted.
        """
        from duesweep.operations.look import look_ahead

        return look_ahead(self.context, show, self.spark)

    def handover(
        self,
        *,
        cutoff: datetime | None = None,
        stop: Stop | None = None,
        watch: "Watch | None" = None,
    ) -> "Handover":
        """Move all messages that are due at `cutoff` or later (None: all of them) out of the store,
        on Spark: due messages to their queues, the rest into RabbitMQ's delay ladder.
        """
        from duesweep.operations.handover import handover
        from duesweep.operations.opening import opened_engine

        context = handover_context(self.config)
        on_spark = context.spark_from is not None
        with opened_engine(context, on_spark=on_spark, spark=self.spark) as engine:
            return handover(engine, context, cutoff, watch, stop=stop)

    def check_handover(self) -> "Sequence[Problem]":
        """Raise an error that would stop a handover, before Spark starts; return notices about the
        store.
        """
        from duesweep.operations.handover import check

        return check(handover_context(self.config))

    def preview_handover(self, *, cutoff: datetime | None = None) -> "Preview":
        """How many messages a handover would send to each destination. Moves nothing."""
        from duesweep.operations.handover import preview

        return preview(handover_context(self.config), cutoff)

    def abort_handover(self) -> "Aborted":
        """Stop the handovers and sweeps that are running, each before its next batch."""
        from duesweep.operations.handover import abort

        return abort(handover_context(self.config))

    def list(
        self,
        wanted: "Wanted | None" = None,
        *,
        most: int = 20,
        scan_limit: int = SCAN_LIMIT,
        show: "Show | None" = None,
        tell: Tell = tell_nobody,
    ) -> "Listing":
        """The `most` first messages that wait, and how many come due how soon. Locks nothing.
        `show` gets the first messages before all are counted.
        """
        from duesweep.operations.messages import list_messages, open_look

        with open_look(self.context.store) as session:
            now = session.horizon().server_time
            meant = wanted(now) if callable(wanted) else wanted or MessageFilter()
            name = self.context.own_name
            return list_messages(
                session, meant, name, now, most=most, scan_limit=scan_limit, show=show, tell=tell
            )

    def show(self, key: str | None = None, *, message_id: str | None = None) -> "Shown":
        """A message that waits, whole, and its history in the ledger. Locks nothing."""
        from duesweep.operations.messages import show_message
        from duesweep.operations.opening import reading_ledger

        context, spark = self.context, self.spark
        return show_message(context, key, message_id, lambda: reading_ledger(context, spark))

    def choose(
        self,
        wanted: "Wanted",
        command: CommandName = CommandName.CANCEL,
        *,
        everything: bool = False,
        scan_limit: int = SCAN_LIMIT,
        tell: Tell = tell_nobody,
    ) -> "Chosen":
        """The messages that a filter means, which `command` is to change. `everything` has to be
        said for a filter without conditions.
        """
        from duesweep.operations.messages import choose_messages

        def meant(now: datetime) -> MessageFilter:
            found = wanted if isinstance(wanted, MessageFilter) else wanted(now)
            _refuse_unclear(found.is_empty, everything=everything)
            return found

        return choose_messages(self.context, meant, command, scan_limit=scan_limit, tell=tell)

    def cancel(
        self,
        wanted: "MessageFilter | Chosen",
        *,
        reason: str | None = None,
        everything: bool = False,
        stop: Stop | None = None,
        tell: Tell = tell_nobody,
    ) -> "Changed":
        """Take messages out of the store, whole into the ledger. `everything` has to be said for a
        filter without conditions, a reason has to be given for more than one message.
        """
        from duesweep.operations.change import cancel_chosen

        chosen = self._chosen(wanted, CommandName.CANCEL, everything=everything)
        work = cancel_chosen(chosen, self.context.limits)
        return self._act(chosen, lambda _: work, reason=reason, stop=stop, tell=tell)

    def reschedule(
        self,
        wanted: "MessageFilter | Chosen",
        *,
        to: Moment | None = None,
        by: timedelta | None = None,
        reason: str | None = None,
        everything: bool = False,
        stop: Stop | None = None,
        tell: Tell = tell_nobody,
    ) -> "Changed":
        """Give messages another Due: at `to`, or moved `by` a time. Otherwise as `cancel`."""
        from duesweep.operations.change import reschedule_chosen

        if (to is None) == (by is None):
            raise ConfigError("`reschedule` needs either `to` or `by`", advice="give one of them")
        chosen = self._chosen(wanted, CommandName.RESCHEDULE, everything=everything)
        work = reschedule_chosen(chosen, self.context.limits, to, by)
        return self._act(chosen, lambda _: work, reason=reason, stop=stop, tell=tell)

    def choose_cancelled(
        self, keys: Sequence[str] = (), *, command: str | None = None, again: bool = False
    ) -> "ChosenCancelled":
        """Cancelled messages to restore: the ones with these keys, the ones that `command`
        cancelled, or both; `again`: also ones that were restored already.
        """
        from duesweep.operations.restore import choose_cancelled

        return choose_cancelled(self.context, keys, command, again=again, spark=self.spark)

    def restore(
        self,
        chosen: "ChosenCancelled",
        *,
        due: Moment | None = None,
        reason: str | None = None,
        stop: Stop | None = None,
        tell: Tell = tell_nobody,
    ) -> "Changed":
        """Store cancelled messages again as they were, due when they were or at `due`, each once.
        A reason has to be given for more than one message.
        """
        from duesweep.operations.restore import CancelledMessages, Restore

        self._refuse_others(chosen, CommandName.RESTORE)

        def work(ledger: "Ledger") -> Restore:
            messages = CancelledMessages(ledger, chosen.source, chosen.keys, chosen.cancelled_by)
            return Restore(messages, chosen.ids, self.context.limits, due, again=chosen.again)

        return self._act(chosen, work, reason=reason, stop=stop, tell=tell)

    def pause(self, destination: str, *, reason: str, until: Moment | None = None) -> "Pauses":
        """Let no sweep deliver to a destination or pattern, `until` a time or until `resume`."""
        from duesweep.operations.pauses import pause

        return pause(self.context.store, destination, until, reason)

    def resume(self, destination: str) -> "Resumed":
        """End the pause of just this destination or pattern."""
        from duesweep.operations.pauses import resume

        return resume(self.context.store, destination)

    def paused(self) -> "Pauses":
        """The pauses in force."""
        from duesweep.operations.pauses import list_pauses

        return list_pauses(self.context.store)

    def error_groups(
        self, wanted: ErrorFilter | None = None, *, most: int = 50, with_discarded: bool = False
    ) -> "GroupListing":
        """Exhausted messages in groups, with the most open ones first."""
        from duesweep.operations.errors import list_groups

        meant = wanted or ErrorFilter()
        with self._errors() as messages:
            return list_groups(messages, meant, most, with_discarded=with_discarded)

    def errors(
        self, wanted: ErrorFilter | None = None, *, most: int = 50, with_discarded: bool = False
    ) -> "ErrorListing":
        """Exhausted messages, the last failures first."""
        from duesweep.operations.errors import list_errors

        meant = wanted or ErrorFilter()
        with self._errors() as messages:
            return list_errors(messages, meant, most, with_discarded=with_discarded)

    def show_errors(self, message: str) -> "ShownErrors":
        """All errors of the message with this message id or key, whole."""
        from duesweep.operations.errors import show_errors

        with self._errors() as messages:
            return show_errors(messages, message)

    def choose_errors(
        self,
        wanted: ErrorFilter,
        command: CommandName = CommandName.REPLAY,
        *,
        again: bool = False,
        everything: bool = False,
    ) -> "ChosenErrors":
        """The errors that a filter means, which `command` is about; `again`: also ones that were
        replayed or discarded before.
        """
        from duesweep.operations.replay import choose_errors

        _refuse_unclear(wanted.is_empty, everything=everything)
        with self._errors() as messages:
            return choose_errors(self.context, messages, wanted, command, again=again)

    def replay(
        self,
        wanted: "ErrorFilter | ChosenErrors",
        *,
        to: str | None = None,
        due: Moment | None = None,
        reason: str | None = None,
        everything: bool = False,
        stop: Stop | None = None,
        tell: Tell = tell_nobody,
    ) -> "Changed":
        """Store errors again, each once, for the next sweep: to their destinations or `to` another
        one, due now or at `due`. Otherwise as `cancel`.
        """
        from duesweep.operations.errors import ExhaustedMessages
        from duesweep.operations.replay import Replay

        chosen = self._chosen_errors(wanted, CommandName.REPLAY, everything=everything)

        def work(ledger: "Ledger") -> Replay:
            messages = ExhaustedMessages(ledger, chosen.source)
            return Replay(self.context, messages, chosen, to, due)

        return self._act(chosen, work, reason=reason, stop=stop, tell=tell)

    def discard(
        self,
        wanted: "ErrorFilter | ChosenErrors",
        *,
        reason: str | None = None,
        everything: bool = False,
        stop: Stop | None = None,
        tell: Tell = tell_nobody,
    ) -> "Changed":
        """Mark errors as done without a replay. The ledger keeps them. Otherwise as `cancel`."""
        from duesweep.operations.errors import ExhaustedMessages
        from duesweep.operations.replay import Discard

        chosen = self._chosen_errors(wanted, CommandName.DISCARD, everything=everything)

        def work(ledger: "Ledger") -> Discard:
            return Discard(ExhaustedMessages(ledger, chosen.source), chosen, self.context.limits)

        return self._act(chosen, work, reason=reason, stop=stop, tell=tell)

    def audit(self) -> "AuditReport":
        """Compare store, journal and ledger. Differences are in `suspects`."""
        from duesweep.operations.audit import audit

        return audit(self.context, self.spark)

    def maintain(self, *, forget: Sequence[str] = ()) -> "MaintainReport":
        """Settle, remove old rows, and tidy up the ledger's files. `forget` are sources
        whose delayed tables are gone.
        """
        from duesweep.operations.maintain import maintain

        return maintain(self.config, forget, self.spark)

    def setup(self, *, rebind: bool = False, new_endpoint: bool = False) -> "SetUp":
        """Create missing tables in the databases. `rebind`: free the journal from its ledger.
        `new_endpoint`: also if there is a delayed table with almost the same name.
        """
        from duesweep.operations.setup import set_up

        return set_up(self.config, rebind=rebind, new_endpoint=new_endpoint)

    def setup_script(self, grant_to: str | None = None, *, new_endpoint: bool = False) -> str:
        """The statements of `setup`, and the grants that a role needs for sweeps."""
        from duesweep.operations.setup import setup_script

        return setup_script(self.config, grant_to, new_endpoint=new_endpoint)

    def doctor(self, *, ignored: Sequence[str] = (), with_spark: bool = True) -> "Diagnosis":
        """Check services and settings, and say what to do about each problem."""
        from duesweep.operations.doctor import examine

        return examine(self.config, ignored=ignored, with_spark=with_spark)

    def status(self, *, days: int = 7) -> "Status":
        """The sweeps of these days, the waiting messages, and the problems."""
        from duesweep.operations.status import status

        return status(self, days)

    def table(self, name: str) -> Any:
        """A table of the ledger: with `spark` a `pyspark.sql.DataFrame`, which reads nothing yet,
        else a `pyarrow.Table`. Raises `ConfigError` for a name that no table has.
        """
        from duesweep.ledger.base import CHANGES, TABLES, table_name
        from duesweep.ledger.ledger import require_delta_rs_root

        root, names = self.context.ledger_root, (*TABLES, CHANGES)
        if name not in names:
            known = f"one of {', '.join(names)}"
            raise ConfigError(f"The ledger has no table {name!r}", advice=known)
        if self.spark is not None:
            return self.spark.read.table(table_name(root, name))
        require_delta_rs_root(root)
        from duesweep.ledger.delta_rs import DeltaRsTables

        return DeltaRsTables(root).arrow(name)

    def _chosen(
        self, wanted: "MessageFilter | Chosen", command: CommandName, *, everything: bool
    ) -> "Chosen":
        if isinstance(wanted, MessageFilter):
            return self.choose(wanted, command, everything=everything)
        self._refuse_others(wanted, command)
        return wanted

    def _chosen_errors(
        self, wanted: "ErrorFilter | ChosenErrors", command: CommandName, *, everything: bool
    ) -> "ChosenErrors":
        if isinstance(wanted, ErrorFilter):
            return self.choose_errors(wanted, command, everything=everything)
        self._refuse_others(wanted, command)
        return wanted

    def _act(
        self,
        chosen: "AnyChosen",
        work: "Callable[[Ledger], Work]",
        *,
        reason: str | None,
        stop: Stop | None,
        tell: Tell,
    ) -> "Changed":
        from duesweep.operations.change import act

        return act(self.context, chosen, work, reason, spark=self.spark, stop=stop, tell=tell)

    def _refuse_others(self, chosen: "AnyChosen", command: CommandName) -> None:
        """Raise `ConfigError` unless it was chosen for this command, and in this endpoint."""
        if chosen.command is not command:
            raise ConfigError(
                f"These were chosen for `{chosen.command}`, not for `{command}`",
                advice=f"choose them for `{command}`",
            )
        source = self.source
        if chosen.source != source:
            raise ConfigError(
                f"These were chosen in {chosen.source}, not in {source}",
                advice="choose and act with the same endpoint",
            )

    @contextmanager
    def _errors(self) -> "Iterator[ExhaustedMessages]":
        from duesweep.operations.errors import ExhaustedMessages
        from duesweep.operations.opening import command_ledger
        from duesweep.sweep.settle import require_own

        with command_ledger(self.context, self.spark) as ledger:
            with self.context.store.open_driver() as session:
                require_own(session, ledger)
            messages = ExhaustedMessages(ledger, self.source)
            messages.check()
            yield messages


def _refuse_unclear(is_empty: bool, *, everything: bool) -> None:  # noqa: FBT001 - a question
    if is_empty and not everything:
        raise ConfigError(
            "A filter without conditions means all messages",
            advice="give it conditions, or everything=True",
        )


def load_config(
    file: str | PathLike[str] | Mapping[str, object] | None = None,
    overrides: Mapping[str, object] | None = None,
    endpoint: str | None = None,
) -> Config:
    """The configuration of a TOML file, by default `duesweep.toml` if it is there; of one with
    several endpoints, the settings of `endpoint`. Or, in place of a file, of a mapping with
    its sections: `{"store": {"dsn": dsn, ...}, ...}`. The environment overrides it, and `overrides`
    as in `{"sweep.batch_rows": 500}` override both; None is as if it were not given.

    Raises `ConfigError` for its faults.
    """
    values = (overrides or {}).items()
    given = [f"{name}={_text(value)}" for name, value in values if value is not None]
    if isinstance(file, Mapping):
        return configuration.load(configuration.EndpointSettings("", file), given)
    return configuration.load(None if file is None else Path(file), given, endpoint)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
