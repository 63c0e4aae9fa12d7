"""When early messages enter the delay ladder."""

from hypothesis import given
from hypothesis import strategies as st

from duesweep.queues.rabbitmq.punctuality import LadderEntry, Punctuality

_left = st.integers(0, 2**28 * 1_000_000)


@given(_left)
def test_what_is_held_enters_when_whole_seconds_are_left(left_us: int) -> None:
    seconds, hold_seconds = Punctuality(is_wanted=True).entry(left_us)

    assert 0 <= hold_seconds < 1
    assert abs(seconds + hold_seconds - left_us / 1_000_000) < 0.000_001


@given(_left)
def test_what_is_not_held_is_rounded_up(left_us: int) -> None:
    seconds, hold_seconds = Punctuality(is_wanted=False).entry(left_us)

    assert hold_seconds == 0
    assert 0 <= seconds - left_us / 1_000_000 < 1


def test_only_the_first_batches_are_held() -> None:
    punctuality = Punctuality(is_wanted=True)
    held = 0
    while punctuality.entry(1_500_000) == LadderEntry(1, 0.5):
        punctuality.end_batch()
        held += 1
    punctuality.end_batch()

    assert held == 10
    assert punctuality.entry(1_500_000) == LadderEntry(2)
