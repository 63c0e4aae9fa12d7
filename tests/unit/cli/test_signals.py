"""Ctrl-C and SIGTERM are not hidden by the errors of a JVM that got the same signal."""

import pytest
from py4j.protocol import Py4JNetworkError

from duesweep.cli.signals import TerminatedError
from duesweep.errors import SparkError, raise_interruption
from duesweep.spark_errors import map_spark_errors


def _clean_up_without_a_jvm(signalled: BaseException) -> None:
    try:
        raise signalled
    finally:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("signalled", [KeyboardInterrupt(), TerminatedError()])
def test_signal_is_raised_although_the_jvm_has_ended_as_well(signalled: BaseException) -> None:
    with pytest.raises(type(signalled)), map_spark_errors():
        _clean_up_without_a_jvm(signalled)


def test_signal_is_found_behind_the_errors_that_were_made_of_it() -> None:
    lost, made = Py4JNetworkError(), SparkError("Spark failed", transient=True)
    lost.__context__, made.__cause__ = KeyboardInterrupt(), lost

    with pytest.raises(KeyboardInterrupt):
        raise_interruption(made)


def test_error_of_its_own_is_no_signal() -> None:
    with pytest.raises(SparkError), map_spark_errors():
        raise Py4JNetworkError("Answer from Java side is empty")
