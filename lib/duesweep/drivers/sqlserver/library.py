"""Finds Microsoft's ODBC driver on this machine."""

import platform
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from duesweep.errors import OdbcDriverError


@cache
def driver_library() -> str:
    """The path of the driver that came with the packages, for `Driver=`.

    Searched on each machine: the path may differ between executors and driver.
    """
    spec = find_spec("mssql_python_odbc")
    if spec is None or spec.origin is None:
        raise OdbcDriverError(
            "No ODBC driver is installed",
            advice=(
                "install the package mssql-python-odbc, or name an installed driver in the "
                "dsn, as in Driver={ODBC Driver 18 for SQL Server}"
            ),
        )
    folder = Path(spec.origin).parent / "libs"
    # Sorted: the most portable of the builds for Linux comes first.
    found = sorted(folder.glob(_pattern()))
    if not found:
        raise OdbcDriverError(
            f"The package mssql-python-odbc has no driver for {sys.platform} on "
            f"{platform.machine()}",
            advice="name an installed driver in the dsn as Driver={...}",
        )
    return str(found[0])


def _pattern() -> str:
    machine = "x86_64" if platform.machine() in {"x86_64", "AMD64"} else "arm64"
    if sys.platform == "darwin":
        return f"macos/{machine}/lib/libmsodbcsql*.dylib"
    return f"linux/*/{machine}/lib/libmsodbcsql-*.so.*"
