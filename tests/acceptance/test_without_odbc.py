"""Machines without unixODBC: what needs no SQL Server works, what needs it says what to do."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from duesweep.drivers.sqlserver.dsn import driver_library
from support.postgresql_server import PostgreSqlEndpoint

_ROOT = Path(__file__).parents[2]
_RUN = "import sys; from duesweep.cli.app import main; sys.exit(main(sys.argv[1:]))"
_RUN_ALL = (
    "import sys; from duesweep.cli.app import main\n"
    "for command in sys.argv[2:]:\n"
    "    print('\\ncode', main([*command.split(), '--config', sys.argv[1]]))"
)
_COMMANDS = ("config", "setup", "sweep --json", "list", "doctor --no-spark --json")


@pytest.fixture
def no_pyodbc(tmp_path: Path) -> Mapping[str, str]:
    """Variables under which Python finds a pyodbc that cannot be loaded."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    text = 'raise ImportError("libodbc.so.2: cannot open shared object file")\n'
    (folder / "pyodbc.py").write_text(text, "utf-8")
    return {**os.environ, "PYTHONPATH": f"{folder}:{_ROOT / 'lib'}"}


def _run(
    environment: Mapping[str, str], *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_commands_for_postgresql_do_without(
    endpoint: PostgreSqlEndpoint, no_pyodbc: Mapping[str, str]
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    file = endpoint.config_file()

    # One process for them all: it is the imports that take time.
    done = _run(no_pyodbc, "-c", _RUN_ALL, file, *_COMMANDS)

    codes = [line.partition(" ")[2] for line in done.stdout.splitlines() if line[:5] == "code "]
    assert (len(codes), set(codes) <= {"0", "3"}) == (len(_COMMANDS), True), done.stderr
    assert "odbc" not in done.stdout + done.stderr


def test_sweep_of_sql_server_says_what_to_install(
    no_pyodbc: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "duesweep.toml"
    file.write_text(
        '[store]\nkind = "sqlserver"\nendpoint = "Sales"\ndsn = "Server=127.0.0.1,1;Database=nsb"\n'
        '[queues.default]\nkind = "sqlserver"\n'
        f'[ledger]\nroot = "{tmp_path}/ledger"\n',
        "utf-8",
    )

    done = _run(no_pyodbc, "-c", _RUN, "sweep", "--config", file)

    assert done.returncode == 2
    sentence = done.stderr.strip().splitlines()[-1]
    assert "pyodbc cannot be loaded: libodbc.so.2" in sentence
    assert "apt-get install libodbc2" in sentence
    assert "scripts/services.sh odbc" in sentence


@pytest.mark.long
def test_all_tests_are_collected(no_pyodbc: Mapping[str, str]) -> None:
    pytest_options = ("-q", "-p", "no:cacheprovider", "--collect-only")

    done = _run(no_pyodbc, "-m", "pytest", *pytest_options)

    assert done.returncode == 0, done.stdout[-2_000:]


@pytest.mark.usefixtures("odbc")
@pytest.mark.skipif(sys.platform != "linux", reason="libraries are unpacked on Linux only")
def test_libraries_that_the_machine_lacks_are_those_that_were_unpacked(tmp_path: Path) -> None:
    unpacked, hidden = tmp_path / "usr" / "lib" / "unpacked", tmp_path / "hidden"
    unpacked.mkdir(parents=True)
    hidden.mkdir()
    for library in _libraries_of_odbc():
        shutil.copy(library, unpacked / _short(library.name))
        # At a file that is no library the search for it ends: the machine's own is hidden.
        (hidden / _short(library.name)).touch()
    program = (
        "import sys; from pathlib import Path\n"
        "from duesweep.drivers.sqlserver import library\n"
        "library.load_missing(Path(sys.argv[1]))\n"
        "import pyodbc; print(pyodbc.version)\n"
        "print(open('/proc/self/maps').read())"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(hidden)}

    without = _run(environment, "-c", program, tmp_path / "elsewhere")
    done = _run(environment, "-c", program, tmp_path)

    assert "ImportError" in without.stderr
    assert done.returncode == 0, done.stderr
    assert f"{unpacked}/libodbc.so.2" in done.stdout


def _libraries_of_odbc() -> set[Path]:
    """unixODBC's libraries, as they are loaded here."""
    program = (
        "import ctypes; from duesweep.drivers.sqlserver import library; library.odbc()\n"
        f"ctypes.CDLL({driver_library()!r}); print(open('/proc/self/maps').read())"
    )
    lines = _run(os.environ, "-c", program).stdout.splitlines()
    paths = {Path("/", line.partition("/")[2]) for line in lines}
    return {path for path in paths if path.name.startswith(("libodbc.", "libltdl."))}


def _short(name: str) -> str:
    """`libodbc.so.2` of `libodbc.so.2.0.0`."""
    stem, _, version = name.partition(".so.")
    return f"{stem}.so.{version.partition('.')[0]}"
