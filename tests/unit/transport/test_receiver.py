"""The options of a receiver: defaults, limits and cautions."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from duesweep.core.errors import ConfigError
from duesweep_transport.receiver import Receiver, ReceiverOptions

# No connection to a database.
_UNUSED: Any = None


def test_peek_delay_that_is_not_recommended_is_cautioned_about() -> None:
    options = ReceiverOptions(peek_delay=timedelta(seconds=11))

    with capture_logs() as logs:
        Receiver(_UNUSED, "Billing", "error", options)

    assert [(log["log_level"], log["queue"]) for log in logs] == [("warning", "Billing")]
    assert "11 s is not recommended" in logs[0]["caution"]


def test_defaults_are_the_transports() -> None:
    options = ReceiverOptions()

    assert options.peek_delay == timedelta(seconds=1)
    assert options.concurrency >= 2
    assert options.peek_batch >= 100


@pytest.mark.parametrize(
    ("concurrency", "given", "expected"), [(1, None, 100), (30, None, 300), (30, 50, 50)]
)
def test_peek_batch_is_as_large_as_the_threads_need(
    concurrency: int, given: int | None, expected: int
) -> None:
    assert ReceiverOptions(concurrency=concurrency, peek_batch_size=given).peek_batch == expected


@pytest.mark.parametrize(
    ("milliseconds", "cautions"),
    [(1, 1), (99, 1), (100, 0), (1_000, 0), (10_000, 0), (10_001, 1), (60_000, 1)],
)
def test_delay_outside_of_what_is_recommended_is_cautioned_about(
    milliseconds: int, cautions: int
) -> None:
    told = ReceiverOptions(peek_delay=timedelta(milliseconds=milliseconds)).cautions()

    assert len(told) == cautions
    assert all("100 ms to 10 s are recommended" in caution for caution in told)


@pytest.mark.parametrize("milliseconds", [-1, 0])
def test_delay_of_nothing_is_refused(milliseconds: int) -> None:
    with pytest.raises(ConfigError, match="give 100 ms to 10 s"):
        ReceiverOptions(peek_delay=timedelta(milliseconds=milliseconds))


def test_batches_and_threads_of_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="peek batch size of 0"):
        ReceiverOptions(peek_batch_size=0)
    with pytest.raises(ConfigError, match="concurrency limit of 0"):
        ReceiverOptions(concurrency=0)
