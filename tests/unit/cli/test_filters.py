"""The options by which commands choose messages, as Typer reads them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from duesweep.cli import filters
from duesweep.cli.filters import FilterOptions
from duesweep.core.change import DueSpan, MessageFilter
from duesweep.core.errors import ConfigError

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


def _read(*arguments: str) -> MessageFilter:
    """What a command with these options makes of a command line."""
    app, found = typer.Typer(), list[MessageFilter]()

    @app.command()
    def command(
        *,
        key: filters.Keys = None,
        message_id: filters.MessageIds = None,
        destination: filters.Destination = None,
        message_type: filters.MessageType = None,
        saga_id: filters.SagaId = None,
        header: filters.HeaderPatterns = None,
        due_after: filters.DueAfter = None,
        due_before: filters.DueBefore = None,
    ) -> None:
        given: dict[str, Any] = {
            "keys": key or (),
            "message_ids": message_id or (),
            "headers": header or (),
        }
        options = FilterOptions(
            destination=destination,
            message_type=message_type,
            saga_id=saga_id,
            due_after=due_after,
            due_before=due_before,
            **given,
        )
        found.append(options.at(NOW))

    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_no_option_means_all_messages() -> None:
    assert _read().is_empty


def test_each_option_is_a_condition() -> None:
    read = _read(
        *("--key", "1", "--key", "2", "--message-id", "m", "--destination", "Bill*"),
        *("--type", "*Cancel*", "--saga-id", "s", "--header", "A=b=*", "--header", "C="),
        *("--due-after", "-1d", "--due-before", "2026-12-01T10:00:00+01:00"),
    )

    assert read == MessageFilter(
        keys=("1", "2"),
        message_ids=("m",),
        destination="Bill*",
        message_type="*Cancel*",
        saga_id="s",
        headers=(("A", "b=*"), ("C", "")),
        due=DueSpan(NOW - timedelta(days=1), NOW + timedelta(hours=1)),
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--header", "Colour"), "NAME=PATTERN"),
        (("--header", "=blue"), "NAME=PATTERN"),
        (("--due-after", "tomorrow"), "'tomorrow' is not a time"),
        (("--due-after", "+2h", "--due-before", "+1h"), "exchange --due-after and --due-before"),
        (("--due-after", "now", "--due-before", "now"), "exchange --due-after and --due-before"),
    ],
)
def test_option_that_cannot_be_read_is_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        _read(*arguments)
