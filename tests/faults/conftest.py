"""What the tests of faults share."""

from collections.abc import Iterator

import pytest
from pyspark import cloudpickle

from support.trials import armed, points


@pytest.fixture
def points_in_workers() -> Iterator[None]:
    """Spark's workers of the tests cannot import the tests' modules, as those of the trials can."""
    for module in (armed, points):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (armed, points):
        cloudpickle.unregister_pickle_by_value(module)
