"""Loads pyodbc, and finds Microsoft's ODBC driver on this machine."""

import ctypes
import platform
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from duesweep.core.errors import OdbcDriverError

INSTALL = (
    "install unixODBC and Kerberos (Debian, Ubuntu: apt-get install libodbc2 libgssapi-krb5-2; "
    "without root, in a checkout: scripts/services.sh odbc)"
)
# Filled by scripts/services.sh; only a checkout has it.
_UNPACKED = Path(__file__).parents[4] / ".cache" / "services" / "odbc"


@cache
def odbc() -> Any:
    """The module pyodbc, with the shared libraries that it and Microsoft's driver need.

    Called where a session is opened: all else of this package works without these libraries.
    Raises `OdbcDriverError` if one is missing.
    """
    # This machine's libraries come first; a driver is often built for just these.
    load_missing(_UNPACKED)
    try:
        import pyodbc  # noqa: PLC0415
    except ImportError as error:
        raise OdbcDriverError(f"pyodbc cannot be loaded: {error}", advice=INSTALL) from error
    # unixODBC has one pool for the process: a forked worker would share its parent's connections.
    pyodbc.pooling = False
    return pyodbc


def load_missing(folder: Path) -> None:
    """Load the shared libraries of unpacked packages that this machine does not have itself.

    What is loaded later finds them by their names, so no variable has to name the folder.
    """
    waiting = sorted(folder.glob("usr/lib/*/lib*.so.?")) + sorted(folder.glob("lib/*/lib*.so.?"))
    # Some of them need others.
    while waiting:
        left = [library for library in waiting if not _loads(library)]
        if left == waiting:
            return
        waiting = left


def _loads(library: Path) -> bool:
    for name in (library.name, str(library)):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


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
