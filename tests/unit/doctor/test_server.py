"""An ODBC driver that is missing is no server out of reach."""

from collections.abc import Callable, Iterator

import pytest

from duesweep.checks.finding import Check
from duesweep.checks.server import unreachable
from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.sqlserver.dsn import driver_library, odbc
from duesweep.drivers.sqlserver.errors import connect_errors


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    driver_library.cache_clear()
    yield
    driver_library.cache_clear()


def _about(error: ConfigError | StoreError) -> tuple[str, str]:
    finding = unreachable("store.dsn", error)
    assert finding.found == error.text
    assert finding.advice
    return finding.check, finding.about


def _does_not_load() -> None:
    with connect_errors("db.example"):
        raise odbc().Error("01000", "[01000] [unixODBC][Driver Manager]Can't open lib '/x' (0)")


class _OfAnotherMachine:
    """Where a package is whose driver is for another machine."""

    origin = "/nonexistent/__init__.py"


@pytest.mark.usefixtures("odbc")
@pytest.mark.parametrize(
    ("found", "use"),
    [
        pytest.param(None, driver_library, id="not installed"),
        pytest.param(_OfAnotherMachine, driver_library, id="not for this machine"),
        pytest.param(_OfAnotherMachine, _does_not_load, id="does not load"),
    ],
)
def test_driver_that_is_missing_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, found: object, use: Callable[[], object]
) -> None:
    monkeypatch.setattr("duesweep.drivers.sqlserver.dsn.find_spec", lambda _: found)

    with pytest.raises(ConfigError) as caught:
        use()

    assert _about(caught.value) == (Check.DRIVER_IMPORT, "store.dsn")


def test_server_that_does_not_answer_is_out_of_reach() -> None:
    error = StoreError("No SQL Server takes a session at db.example: gone", transient=True)

    assert _about(error) == (Check.SERVER_REACHABLE, "store.dsn")
