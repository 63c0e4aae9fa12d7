"""The modules that a command loads at its start (cron starts one each minute)."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from duesweep.drivers.sqlserver.dsn import driver_library
from support.commands import ROOT, Ran, run_program, run_python
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.postgresql_server import PostgreSqlEndpoint

# Each takes from a tenth of a second to several seconds.
SLOW = {
    *(
        "deltalake",
        "duesweep.operations.doctor",
        "jinja2",
        "opentelemetry",
        "pika",
        "psycopg",
        "pyarrow",
    ),
    *("pyodbc", "pyspark", "urllib.request"),
}
# Every other command reads its configuration, and what prints may lay out a table.
NOT_FOR_HELP = SLOW | {"duesweep.config", "duesweep.operations", "rich"}
DRIVER = {"postgresql": {"psycopg"}, "sqlserver": {"pyodbc"}}


def loaded(*arguments: str, of: set[str] = SLOW) -> set[str]:
    """The slow modules that a command loads in a new interpreter; it has to end with 0."""
    done = run_python("-X", "importtime", "-m", "duesweep", *arguments)
    assert done.code == 0, done.err
    modules = set(re.findall(r"^import time:.*\|\s+(\S+)$", done.err, re.MULTILINE))
    assert "duesweep.cli.app" in modules
    return of & modules


@pytest.mark.parametrize("command", [[], ["sweep"], ["list"]], ids=" ".join)
def test_help_loads_nothing_slow(command: list[str]) -> None:
    assert loaded(*command, "--help", of=NOT_FOR_HELP) == set()


@ON_BOTH_SERVERS
@pytest.mark.parametrize("command", ["sweep", "list"])
def test_command_without_work_loads_its_stores_driver_only(
    endpoint: Endpoint[Any], command: str
) -> None:
    endpoint.set_up()

    assert loaded(command, "--config", str(endpoint.config_file())) == DRIVER[endpoint.kind]


def test_queues_of_rabbitmq_bring_its_driver_and_nothing_else(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up()
    file = endpoint.config_file(queues__default__kind="rabbitmq", queues__default__url="amqp://b")

    assert loaded("list", "--config", str(file)) == {"pika", "psycopg"}


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
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'lib'}"}


def _run(environment: Mapping[str, str], *arguments: object) -> Ran:
    return run_program(sys.executable, *arguments, env=environment, cwd=ROOT)


def test_commands_for_postgresql_do_without(
    endpoint: PostgreSqlEndpoint, no_pyodbc: Mapping[str, str]
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    file = endpoint.config_file()

    # One process for them all: it is the imports that take time.
    done = _run(no_pyodbc, "-c", _RUN_ALL, file, *_COMMANDS)

    codes = [line.partition(" ")[2] for line in done.out.splitlines() if line[:5] == "code "]
    assert (len(codes), set(codes) <= {"0", "3"}) == (len(_COMMANDS), True), done.err
    assert "odbc" not in done.told


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

    assert done.code == 2
    sentence = done.err.strip().splitlines()[-1]
    assert "pyodbc cannot be loaded: libodbc.so.2" in sentence
    assert "apt-get install libodbc2" in sentence
    assert "scripts/services.py odbc" in sentence


@pytest.mark.long
def test_all_tests_are_collected(no_pyodbc: Mapping[str, str]) -> None:
    pytest_options = ("-q", "-p", "no:cacheprovider", "--collect-only")

    done = _run(no_pyodbc, "-m", "pytest", *pytest_options)

    assert done.code == 0, done.out[-2_000:]


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
        "from duesweep.drivers.sqlserver import dsn\n"
        "dsn.load_missing(Path(sys.argv[1]))\n"
        "import pyodbc; print(pyodbc.version)\n"
        "print(open('/proc/self/maps').read())"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(hidden)}

    without = _run(environment, "-c", program, tmp_path / "elsewhere")
    done = _run(environment, "-c", program, tmp_path)

    assert "ImportError" in without.err
    assert done.code == 0, done.err
    assert f"{unpacked}/libodbc.so.2" in done.out


def _libraries_of_odbc() -> set[Path]:
    """unixODBC's libraries, as they are loaded here."""
    program = (
        "import ctypes; from duesweep.drivers.sqlserver import dsn; dsn.odbc()\n"
        f"ctypes.CDLL({driver_library()!r}); print(open('/proc/self/maps').read())"
    )
    lines = _run(os.environ, "-c", program).out.splitlines()
    paths = {Path("/", line.partition("/")[2]) for line in lines}
    return {path for path in paths if path.name.startswith(("libodbc.", "libltdl."))}


def _short(name: str) -> str:
    """`libodbc.so.2` of `libodbc.so.2.0.0`."""
    stem, _, version = name.partition(".so.")
    return f"{stem}.so.{version.partition('.')[0]}"
