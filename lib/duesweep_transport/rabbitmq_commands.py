"""`duesweep rabbitmq …`: NServiceBus's queues and exchanges on a broker."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from duesweep.cli.commands import AGAIN, NOTHING, Printed, command, group
from duesweep.cli.signals import CHANGES_STAY, stop_on_signals
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    ExitCode,
    MessageError,
    RefusedMessageError,
)
from duesweep.core.passing import passing_line
from duesweep.core.quantities import duration_text
from duesweep.core.result import exit_code_of
from duesweep.report.text import Line
from duesweep.report.views import upkeep
from duesweep_transport import views
from duesweep_transport.commands import SENT, Content, On

if TYPE_CHECKING:
    from duesweep_transport.migration import MigrationReport

rabbitmq = group(
    "Create and verify the queues and exchanges of NServiceBus on RabbitMQ; send messages."
)
delays = group("The delay ladder: queues and exchanges that hold delayed messages.")
endpoint = group("The queues of endpoints.")
rabbitmq.add_typer(delays, name="delays")
rabbitmq.add_typer(endpoint, name="endpoint")


@command(rabbitmq, "send", ending=SENT)
def send_to_endpoint(
    name: Annotated[str, typer.Argument(help="The name of an endpoint.")],
    *,
    content: Content,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Send it after this time, in seconds or such as 1d2h3m4s, through the delay "
            "ladder."
        ),
    ] = None,
    on: On,
) -> Printed:
    """Send a message to an endpoint, now or later.

    Exits with 2 if the endpoint is missing, with 3 if the broker refuses the message.

    Example: duesweep rabbitmq send Billing --body '{}' --delay 1h
    """
    from duesweep_transport import brokers

    if delay is not None and delay.isdecimal():
        delay += "s"
    message = content.message(delay)
    with brokers.sender(on.loaded(), on.connection) as sender:
        try:
            sent_id = sender.send(name, message)
        except RefusedMessageError:
            raise
        except MessageError as error:
            raise ConfigError(
                f"Nothing was sent: {error.text}",
                advice="correct the name, or create it with `duesweep rabbitmq endpoint create`",
            ) from error
    sentence = f"sent to {name}; message id {sent_id}"
    if message.delay:
        wait = duration_text(message.delay / timedelta(milliseconds=1))
        sentence = f"deferred to {name}, which gets it in {wait}; message id {sent_id}"
    value = {"endpoint": name, "message_id": sent_id, "delayed": bool(message.delay)}
    return Printed(value, [Line(sentence)])


@command(delays, "create", ending=AGAIN)
def create_delays(*, on: On) -> Printed:
    """Create the missing parts of the delay ladder.

    Example: duesweep rabbitmq delays create
    """
    return _create_on_broker(on, [])


@command(delays, "verify", ending=NOTHING)
def verify(*, on: On) -> Printed:
    """Compare the delay ladder with the expected one, and list the differences. Changes nothing.

    Exits with 3 if there is a fault or a warning, else with 0.

    Example: duesweep rabbitmq delays verify
    """
    from duesweep.operations.doctor import Diagnosis
    from duesweep_transport import brokers

    config = on.loaded()
    found = Diagnosis.of(config.store.endpoint, brokers.ladder_findings(config, on.connection))
    return Printed(found, upkeep.diagnosis(found, is_verbose=True))


def _migrated(report: "MigrationReport", error: DuesweepError | None = None) -> Printed:
    """The messages moved from one ladder to the other, before an `error` if there was one, and the
    reasons for the rest.
    """
    names = ("moved", "poison", "left", "redelivered", "is_stopped", "reasons", "levels")
    code = ExitCode.MESSAGES_FAILED if report.left or report.poison else ExitCode.DONE
    if report.is_stopped:
        code = ExitCode.WORK_LEFT
    if error is not None:
        code = exit_code_of(error)
    document = {name: getattr(report, name) for name in names}
    ended = {"exit_code": code, "error": None if error is None else str(error)}
    return Printed(document | ended, views.migrated(report))


@command(
    delays,
    "migrate",
    ending="no message is lost, but one may exist twice; run it again to move the rest",
    document=None,
)
def migrate(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count messages; move nothing.")
    ] = False,
    on: On,
) -> Printed:
    """Move messages from the delay ladder of the transport's first versions to the current one.

    Exits with 3 if messages are left or went to the poison queue, with 4 if it was stopped.

    Example: duesweep rabbitmq delays migrate --dry-run
    """
    from duesweep.operations.duesweep import Stop
    from duesweep_transport import brokers
    from duesweep_transport.migration import MigrationReport

    migration = brokers.migration(on.loaded(), on.connection)
    if dry_run:
        found = migration.count()
        levels = [{"queue": one.queue, "waiting": one.waiting} for one in found.levels]
        waiting = sum(one.waiting for one in found.levels)
        return Printed({"waiting": waiting, "levels": levels}, views.to_migrate(found))
    report = MigrationReport()
    try:
        moved = passing_line(lambda: f"moved: {report.moved:,}")
        with moved, stop_on_signals(stop := Stop(), CHANGES_STAY):
            migration.run(report, lambda: stop.is_wanted, lambda _: None)
    except DuesweepError as error:
        # Before the first level the result is empty.
        if report.levels or on.as_json:
            _migrated(report, error).print(as_json=on.as_json)
        raise
    return _migrated(report)


@command(endpoint, "create", ending=AGAIN)
def create_endpoint(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The names of endpoints.")],
    *,
    on: On,
) -> Printed:
    """Create the missing queues, exchanges and bindings of endpoints, and the delay ladder.

    Example: duesweep rabbitmq endpoint create Billing Shipping
    """
    return _create_on_broker(on, names)


def _create_on_broker(on: On, endpoints: Sequence[str]) -> Printed:
    from duesweep_transport import brokers

    installer = brokers.installer(on.loaded(), on.connection, endpoints)
    created = installer.create()
    # A broker does not say whether a binding was new, so bindings are never listed.
    told = [f"created {one}" for one in created] or ["Everything exists."]
    return Printed({"created": created}, map(Line, told))
