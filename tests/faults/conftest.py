"""Parts that the tests of faults share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from support.trials import armed, points
from support.trials.services import Services


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Iterator[Services]:
    """The servers of trials, whose PostgreSQL loses nothing when it is stopped at once."""
    with tempfile.TemporaryDirectory(prefix="duesweep-trials-") as folder:
        # As root PostgreSQL runs under a user of its own, who must get in.
        Path(folder).chmod(0o755)
        broker = lambda: request.getfixturevalue("broker_server")  # noqa: E731 - only if needed
        with Services(Path(folder), broker) as services:
            yield services


@pytest.fixture
def points_in_workers() -> Iterator[None]:
    """Spark's workers of the tests cannot import the tests' modules, as the workers of the trials
    can.
    """
    for module in (armed, points):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (armed, points):
        cloudpickle.unregister_pickle_by_value(module)
