"""What tests of the commands share."""

import sys

import pytest


@pytest.fixture
def no_spark_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have started a session; this one finds none."""
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
