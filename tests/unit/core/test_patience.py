"""How long a process waits for a lock that another one holds."""

from duesweep.core.patience import NO_PATIENCE, Patience


def _holder() -> str:
    return "sweep 1 on host a"


def test_all_waits_together_have_an_end() -> None:
    patience = Patience(0.15)

    tries = [patience.wait(_holder) for _ in range(5)]

    assert tries == [True, True, False, False, False]


def test_stop_ends_the_wait() -> None:
    asked = [False, True]

    patience = Patience(60, lambda: asked.pop(0))

    assert [patience.wait(_holder), patience.wait(_holder)] == [True, False]


def test_without_patience_nobody_waits() -> None:
    assert not NO_PATIENCE.wait(_holder)
