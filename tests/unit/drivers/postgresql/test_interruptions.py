"""Ctrl-C and SIGTERM are not hidden by the errors of the driver that they interrupted."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
import pytest

from duesweep.cli.signals import TerminatedError
from duesweep.core.address import TableName
from duesweep.drivers.postgresql.errors import destination_errors, map_errors

_EDGES = [map_errors, lambda: destination_errors(TableName("public", "Billing"))]


@pytest.mark.parametrize("edge", _EDGES)
@pytest.mark.parametrize("signalled", [KeyboardInterrupt(), TerminatedError()])
def test_signal_that_interrupts_a_statement_is_no_fault_of_the_server(
    signalled: BaseException, edge: Callable[[], AbstractContextManager[None]]
) -> None:
    with pytest.raises(type(signalled)), edge():
        _leave_a_pipeline(signalled)


def _leave_a_pipeline(signalled: BaseException) -> None:
    try:
        raise signalled
    finally:
        raise psycopg.ProgrammingError("cannot exit pipeline mode while busy")
