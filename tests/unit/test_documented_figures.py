"""Figures in the documentation that the code decides."""

from pathlib import Path

import pytest

from duesweep.config import QueueConfig
from duesweep.core.policy import BATCH_ROWS, CLAIM_SECONDS, MAX_BATCH_ROWS, BatchLimits
from duesweep.queues.rabbitmq.topology import LONGEST_DELAY_SECONDS

_ROOT = Path(__file__).parents[2]


def _text(name: str) -> str:
    return " ".join((_ROOT / name).read_text(encoding="utf-8").split())


def test_window_in_which_messages_may_double_is_one_batch() -> None:
    rows = f"{BATCH_ROWS:,} messages ({MAX_BATCH_ROWS:,} from SQL Server)"
    megabytes = BatchLimits().bytes // 1_000_000

    readme = _text("README.md")
    assert f"{rows} or {megabytes} MB, held for about {CLAIM_SECONDS:.0f} s" in readme
    life = _text("docs/life-of-a-message.md")
    assert f"({BATCH_ROWS:,}, from SQL Server {MAX_BATCH_ROWS:,})" in life
    assert f"headers and bodies ({megabytes} MB)" in life
    assert f"once its claim is {CLAIM_SECONDS:.0f} s old" in life


@pytest.mark.parametrize("page", ["docs/rabbitmq.md", "docs/parity.md"])
def test_longest_delay_is_the_ladders(page: str) -> None:
    assert f"{LONGEST_DELAY_SECONDS:,} s" in _text(page)


def test_messages_in_flight_are_the_default() -> None:
    default = QueueConfig.model_fields["max_in_flight"].default

    assert f"max_in_flight = {default}" in _text("docs/rabbitmq.md")
