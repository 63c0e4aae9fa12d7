"""The commands of `duesweep rabbitmq`."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from duesweep.cli import queue_commands
from duesweep.cli.commands import Result
from duesweep.cli.queue_commands import Target
from duesweep.config.adapters import rabbitmq
from duesweep.core.errors import ConfigError, ExitCode, MessageError, RefusedMessageError
from duesweep.core.message import OutgoingMessage
from duesweep.operations.doctor import Diagnosis
from duesweep.report.quantities import duration_text
from duesweep.report.views import upkeep as views

__all__ = ["Target", "Times", "build_message", "create", "send", "verify"]


class Times(NamedTuple):
    """The options of a message about times, as they are given."""

    time_to_be_received: str | None
    delay: str | None


def create(target: Target, endpoints: Sequence[str], *, as_json: bool) -> ExitCode:
    """Create what is missing of the delay ladder and of these endpoints."""
    created = rabbitmq.installer(target.config(), target.connection, endpoints).install(
        rebind=False
    )
    if as_json:
        print(json.dumps({"created": [str(one) for one in created]}))
        return ExitCode.DONE
    for one in created:
        print(f"created {one}")
    if not created:
        # A broker does not say whether a binding was new, so bindings are never listed.
        print("Everything exists.")
    return ExitCode.DONE


def build_message(
    headers: Sequence[str], named: Mapping[str, str | None], body: bytes | None, times: Times
) -> OutgoingMessage:
    """The message that the options describe; `named` are headers with options of their own."""
    given = {header.partition("=")[0] for header in headers}
    added = [f"{name}={value}" for name, value in named.items() if value is not None]
    for name in named:
        if named[name] is not None and name in given:
            raise ConfigError(
                f"The header {name} is given twice: with --header and with an option of its own",
                advice="leave one of the two out",
            )
    delay = times.delay
    if delay is not None and delay.isdecimal():
        delay += "s"
    return queue_commands.build_message([*headers, *added], body, times.time_to_be_received, delay)


def send(target: Target, name: str, message: OutgoingMessage, *, as_json: bool) -> ExitCode:
    """Send a message and print its id; 2 if the endpoint is missing, 3 if the broker refuses."""
    with rabbitmq.sender(target.config(), target.connection) as sender:
        try:
            message_id = sender.send(name, message)
        except RefusedMessageError:
            raise
        except MessageError as error:
            raise ConfigError(
                f"Nothing was sent: {error.text}",
                advice="correct the name, or create it with `duesweep rabbitmq endpoint create`",
            ) from error
    sentence = f"sent to {name}; message id {message_id}"
    if message.delay:
        wait = duration_text(message.delay / timedelta(milliseconds=1))
        sentence = f"deferred to {name}, which gets it in {wait}; message id {message_id}"
    facts = {"endpoint": name, "message_id": message_id, "delayed": bool(message.delay)}
    queue_commands.print_done(sentence, as_json=as_json, **facts)
    return ExitCode.DONE


def verify(target: Target, *, as_json: bool) -> int:
    """Check the delay ladder and print the findings; 3 if there is a fault or a warning."""
    config = target.config()
    findings = rabbitmq.ladder_findings(config, target.connection)
    found = Diagnosis.of(config.store.endpoint, findings)
    return Result(found, views.diagnosis(found, is_verbose=True)).print(as_json=as_json)
