"""`duesweep errors …`: messages that exhausted their attempts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from duesweep.cli.commands import (
    CHANGES,
    NOTHING,
    Act,
    Common,
    Destination,
    MessageType,
    Printed,
    command,
    group,
)
from duesweep.core.change import CommandName
from duesweep.core.errors import ConfigError
from duesweep.core.exhausted import ErrorFilter
from duesweep.core.times import Moment, parse_moment
from duesweep.report.views import exhausted as views

if TYPE_CHECKING:
    from duesweep.operations.command import Changed
    from duesweep.operations.replay import ChosenErrors

app = group("Show, replay and discard messages that exhausted their attempts.")

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Message ids or keys.")]
All = Annotated[bool, typer.Option("--all", help="All open errors.")]


@dataclass(frozen=True, slots=True)
class WhichErrors:
    """The choice of errors. All conditions have to hold."""

    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="A group of `errors list`.")
    ] = None
    error: Annotated[
        str | None,
        typer.Option(
            "--error", metavar="PATTERN", help="The error's class; * stands for any text."
        ),
    ] = None
    destination: Destination = None
    message_type: MessageType = None
    since: Annotated[
        Moment | None,
        typer.Option(
            parser=parse_moment,
            metavar="TIME",
            help="Failed at this time or later: 2026-12-01T08:00:00Z or -12h.",
        ),
    ] = None
    until: Annotated[
        Moment | None,
        typer.Option(parser=parse_moment, metavar="TIME", help="Failed before this time."),
    ] = None

    def filter(self, ids: Sequence[str] = ()) -> ErrorFilter:
        """The filter by this machine's clock, also with `ids`."""
        now = datetime.now(UTC)
        return ErrorFilter(
            ids=tuple(ids),
            group=self.group,
            error_class=self.error,
            destination=self.destination,
            message_type=self.message_type,
            since=None if self.since is None else self.since.at(now),
            until=None if self.until is None else self.until.at(now),
        )

    def refuse_unknown_group(self, *, is_known: bool) -> None:
        """Raise `ConfigError` if no error is in the group, the only condition: a typing error."""
        if is_known or self.group is None:
            return
        if self.filter() == ErrorFilter(group=self.group):
            raise ConfigError(
                f"There is no error of group {self.group}",
                advice="list the groups with `errors list`, discarded ones with --discarded",
            )


@command(app, "list", ending=NOTHING)
def list_errors(
    *,
    common: Common,
    which: WhichErrors,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Also show discarded errors.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show N groups, or errors of a group.")
    ] = 50,
) -> Printed:
    """List errors in groups by class, destination and message type; with --group, each error of the
    group, newest first.

    Example: duesweep errors list --since -12h
    """
    duesweep, wanted = common.duesweep(), which.filter()
    if which.group is None:
        groups = duesweep.error_groups(wanted, most=limit, with_discarded=discarded)
        return Printed(groups, views.groups(groups))
    errors = duesweep.errors(wanted, most=limit, with_discarded=discarded)
    which.refuse_unknown_group(is_known=bool(errors.errors))
    return Printed(errors, views.errors(errors))


@command(app, "show", ending=NOTHING)
def show(
    message: Annotated[str, typer.Argument(metavar="ID", help="A message id or a key.")],
    *,
    common: Common,
) -> Printed:
    """Show an error: replays, headers, body and stack.

    Example: duesweep errors show 5b0f3a52-6a1c-4b7e-9d0a-3c1f5f0e8a11
    """
    shown = common.duesweep().show_errors(message)
    return Printed(shown, views.shown(shown))


@command(app, "replay", ending=CHANGES)
def replay(
    ids: Ids = None,
    *,
    common: Common,
    which: WhichErrors,
    everything: All = False,
    to: Annotated[
        str | None, typer.Option(metavar="DESTINATION", help="Send them there instead.")
    ] = None,
    due: Annotated[
        Moment | None,
        typer.Option(
            parser=parse_moment, metavar="TIME", help="Let them be due then, such as +10m."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Also replay errors that were replayed or discarded before."),
    ] = False,
    act: Act,
) -> Printed:
    """Store errors again, each once. The next sweep delivers them.

    Exits with 3 if an error was not replayed.

    Example: duesweep errors replay --group 1f0c9a2b --reason 'Billing is up again'
    """
    duesweep, wanted = common.duesweep(), which.filter(ids or ())
    if to is not None and not to.strip():
        raise ConfigError("--to is empty", advice="name a destination, or leave it out")
    chosen = duesweep.choose_errors(wanted, again=again, everything=everything)
    which.refuse_unknown_group(is_known=bool(chosen.rows or chosen.done_rows))
    return _act(common, act, chosen, partial(duesweep.replay, to=to, due=due))


@command(app, "discard", ending=CHANGES)
def discard(
    ids: Ids = None,
    *,
    common: Common,
    which: WhichErrors,
    everything: All = False,
    act: Act,
) -> Printed:
    """Mark errors as done without a replay. The ledger keeps them and the reason.

    Example: duesweep errors discard --group 1f0c9a2b --reason 'orders of the load test'
    """
    duesweep, wanted = common.duesweep(), which.filter(ids or ())
    chosen = duesweep.choose_errors(wanted, CommandName.DISCARD, everything=everything)
    which.refuse_unknown_group(is_known=bool(chosen.rows or chosen.done_rows))
    return _act(common, act, chosen, duesweep.discard)


def _act(common: Common, act: Act, chosen: "ChosenErrors", do: "Callable[..., Changed]") -> Printed:
    common.print(views.remarks(chosen))
    return act.on(common, chosen, views.chosen(chosen), do)
