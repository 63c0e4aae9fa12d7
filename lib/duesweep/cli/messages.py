"""The commands on waiting messages, and `plan`."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duesweep.cli.commands import (
    AGAIN,
    CHANGES,
    NOTHING,
    Act,
    Common,
    Printed,
    ScanLimit,
    Several,
    Which,
    command,
)
from duesweep.core import logs
from duesweep.core.change import SCAN_LIMIT, CommandName
from duesweep.core.errors import ConfigError
from duesweep.core.passing import passing_line
from duesweep.core.times import Moment, parse_moment, parse_signed_duration
from duesweep.report.views import messages as views

if TYPE_CHECKING:
    from duesweep.operations.change import ChosenMessages
    from duesweep.operations.command import Changed
    from duesweep.operations.duesweep import Duesweep
    from duesweep.operations.messages import Shown, Waiting

app = typer.Typer()

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="The keys that `duesweep list` prints."),
]
Everything = Annotated[bool, typer.Option("--all", help="All waiting messages.")]
Pattern = Annotated[
    str,
    typer.Argument(
        metavar="DESTINATION",
        help="A destination; * stands for any text. The endpoint's name is its own queue; * alone "
        "is the whole endpoint.",
    ),
]
NewTime = Annotated[
    Moment | None,
    typer.Option(
        "--to", parser=parse_moment, metavar="TIME", help="The new due time: +2h, or a full time."
    ),
]


@command(app, "list", ending=NOTHING, short="List waiting messages.", has_steps=True)
def list_waiting(
    *,
    common: Common,
    which: Which,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="A key in the delayed table; may be repeated."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Show the N messages with the earliest due times."),
    ] = 20,
    scan_limit: ScanLimit = SCAN_LIMIT,
    count: Annotated[
        bool, typer.Option("--count", help="Show only the numbers of messages.")
    ] = False,
    failing: Annotated[
        bool,
        typer.Option(
            "--failing", help="Show only failed messages, with the reason and the next attempt."
        ),
    ] = False,
) -> Printed:
    """List the waiting messages, and count how soon they fall due. Changes and locks nothing.

    Example: duesweep list --destination 'Billing*' --due-before +1h
    """

    def show(messages: "Sequence[Waiting]", now: datetime) -> None:
        common.print(views.first_messages(messages, now, is_failing=failing))

    wanted, most = which.filter(key or (), is_failing=failing), 0 if count else limit
    listing = common.duesweep().list(wanted, most=most, scan_limit=scan_limit, show=show)
    return Printed(listing, views.counts(listing, is_failing=failing))


@command(app, "plan", ending=NOTHING, short="Preview the next sweep.", has_steps=True)
def plan(
    *,
    several: Several,
    sql: Annotated[bool, typer.Option("--sql", help="Also show the query of the plan.")] = False,
) -> Printed:
    """Preview the next sweep: due messages by destination, messages that are held back, the engine
    and the time. Changes and locks nothing.

    Example: duesweep plan
    """
    from duesweep.report.views import runs

    def planned(one: "Duesweep") -> Printed:
        outlook = one.plan(
            show=lambda found: several.print(runs.plan_destinations(found)), with_sql=sql
        )
        return Printed(outlook, runs.plan_blocks(outlook))

    return several.each(planned)


@command(app, "show", ending=NOTHING, short="Show one message with its history.")
def show(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key that `duesweep list` prints.")
    ] = None,
    *,
    common: Common,
    message_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The message id, instead of the key.")
    ] = None,
    body_to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the unchanged body to a new file."),
    ] = None,
) -> Printed:
    """Show a message with headers, body, failures and its history in the ledger. Changes and locks
    nothing.

    Exits with 3 if neither the store nor the ledger knows the message.

    Example: duesweep show 0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f
    """
    shown = common.duesweep().show(key, message_id=message_id)
    if body_to is not None:
        _write_body(body_to, shown)
    return Printed(shown, views.shown(shown))


def _write_body(path: Path, shown: "Shown") -> None:
    if len(shown.messages) != 1:
        raise ConfigError(
            f"{len(shown.messages)} stored messages have {shown.named}, so --body-to has not one "
            "body",
            advice="give the key of one; `duesweep list` has it",
        )
    try:
        # Readable for this user only: a body may hold secrets.
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(number, "wb") as file:  # noqa: PTH123 - it is open
            file.write(shown.messages[0].body or b"")
    except OSError as error:
        raise ConfigError(
            f"--body-to {path} cannot be written: {error.strerror}", advice="name a new file"
        ) from error


@command(app, "cancel", ending=CHANGES, short="Take messages out of the store.")
def cancel(
    keys: Keys = None,
    *,
    common: Common,
    which: Which,
    scan_limit: ScanLimit = SCAN_LIMIT,
    everything: Everything = False,
    act: Act,
) -> Printed:
    """Cancel messages: move them out of the store into the ledger. `restore` undoes it.

    With a filter, it lists the messages and asks for confirmation. Exits with 3 if a message was
    not cancelled, because a sweep holds it or it is gone.

    Example: duesweep cancel --destination 'Reminders*' --reason 'wrong template'
    """
    duesweep, wanted = common.duesweep(), which.filter(keys or ())
    with passing_line(logs.current_step):
        chosen = duesweep.choose(wanted, everything=everything, scan_limit=scan_limit)
    return _act(common, act, chosen, duesweep.cancel)


@command(app, "reschedule", ending=CHANGES, short="Change the due time of messages.")
def reschedule(
    keys: Keys = None,
    *,
    to: NewTime = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Move each due time by this much, such as 2h or -30m."),
    ] = None,
    common: Common,
    which: Which,
    scan_limit: ScanLimit = SCAN_LIMIT,
    everything: Everything = False,
    act: Act,
) -> Printed:
    """Reschedule messages: change their due time. They keep their keys and their failures.

    With a filter, it lists the messages and asks for confirmation. Exits with 3 if a message was
    not rescheduled, because a sweep holds it or it is gone.

    Example: duesweep reschedule --destination 'Billing*' --by 2h --reason 'Billing is down'
    """
    if (to is None) == (by is None):
        raise ConfigError("`reschedule` needs either --to or --by", advice="give one of them")
    moved = None if by is None else parse_signed_duration(by)
    duesweep, wanted = common.duesweep(), which.filter(keys or ())
    with passing_line(logs.current_step):
        chosen = duesweep.choose(
            wanted, CommandName.RESCHEDULE, everything=everything, scan_limit=scan_limit
        )
    return _act(common, act, chosen, partial(duesweep.reschedule, to=to, by=moved))


@command(app, "restore", ending=CHANGES, short="Store cancelled messages again.")
def restore(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="The keys that the messages had."),
    ] = None,
    *,
    cancelled_by: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="ID",
            help="All messages that this command cancelled; `cancel` prints its id.",
        ),
    ] = None,
    to: NewTime = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Restore messages again that were restored before; this duplicates them.",
        ),
    ] = False,
    common: Common,
    act: Act,
) -> Printed:
    """Restore cancelled messages: store them again, due at their old time or at --to.

    Each message is restored once. The next sweep delivers overdue messages. Exits with 3 if a
    message was not restored.

    Example: duesweep restore --command 4b1d6f0e-8f53-4c7b-9f0f-6a0f3f1f2c55 --to +1h
    """
    duesweep = common.duesweep()
    chosen = duesweep.choose_cancelled(keys or (), command=cancelled_by, again=again)
    do = partial(duesweep.restore, due=to)
    return act.on(common, chosen, views.chosen(chosen), do)


@command(app, "pause", ending=AGAIN, short="Stop delivery to a destination.")
def pause(
    destination: Pattern,
    *,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, which `paused` and `plan` show.")
    ],
    common: Common,
    until: Annotated[
        Moment | None,
        typer.Option(
            parser=parse_moment,
            metavar="TIME",
            help="The end of the pause: +2h, or a full time; default: until `resume`.",
        ),
    ] = None,
) -> Printed:
    """Stop delivery to a destination. Its messages stay in the store, and no attempt is counted.

    Running sweeps obey from their next batch. Current batches end within about 5 seconds.

    Example: duesweep pause 'Billing*' --until +2h --reason 'the bank is down'
    """
    made = common.duesweep().pause(destination, until=until, reason=reason)
    return Printed(made, views.paused(made, destination))


@command(app, "resume", ending=AGAIN, short="End a pause.")
def resume(destination: Pattern, *, common: Common) -> Printed:
    """End the pause of exactly this destination or pattern. Exits with 3 if it is not paused.

    Example: duesweep resume 'Billing*'
    """
    resumed = common.duesweep().resume(destination)
    return Printed(resumed, views.resumed(resumed))


@command(app, "paused", ending=NOTHING, short="List the pauses.")
def paused(*, common: Common) -> Printed:
    """List the pauses in force.

    Example: duesweep paused
    """
    found = common.duesweep().paused()
    return Printed(found, views.pauses(found))


def _act(
    common: Common, act: Act, chosen: "ChosenMessages", do: "Callable[..., Changed]"
) -> Printed:
    common.print(views.unknown(chosen.unknown_destination, "waiting message", with_json=True))
    return act.on(common, chosen, views.chosen_messages(chosen), do)
