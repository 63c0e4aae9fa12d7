"""Parts that the tests of commands share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _in_process(request: pytest.FixtureRequest) -> None:
    """A command that found a session of another test would run on it."""
    callspec = getattr(request.node, "callspec", None)
    wanted = {*request.fixturenames, *map(str, callspec.params.values() if callspec else ())}
    if "spark" not in wanted:
        request.getfixturevalue("no_spark_session")


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Python's own handler of Ctrl-C, whatever a test before this has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
