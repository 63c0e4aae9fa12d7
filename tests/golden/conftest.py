"""What golden outputs need."""

import pytest


@pytest.fixture(autouse=True)
def _in_process(no_spark_session: None) -> None:
    """A sweep that found a session of another test would run on it."""
