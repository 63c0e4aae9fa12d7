"""Servers to ask: containers of SQL Server, one for each version; and their versions."""

import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duesweep.drivers.sqlserver.dsn import odbc
from support.sqlserver_database import closing, connect
from support.sqlserver_server import stand_in_of

_ROOT = Path(__file__).parents[2]
ENGINES = ("docker", "podman")
# Its certificate is its own.
ENCRYPTION = "Encrypt=yes;TrustServerCertificate=yes"
_START_SECONDS = 180
_PULL_SECONDS = 1_800
_POLL_SECONDS = 1.0
_MEMORY_MB = 4_096


class NoServerError(Exception):
    """There is no server to ask; the text has the reason."""


def find_engine() -> str:
    """The container engine of this machine, which runs. Raises `NoServerError`."""
    reasons = []
    for name in ENGINES:
        if (path := shutil.which(name)) is None:
            reasons.append(f"{name} is not installed")
            continue
        done = subprocess.run([path, "info"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return path
        reasons.append(f"{name} does not work: {_last_line(done.stderr or done.stdout)}")
    raise NoServerError("; ".join(reasons))


def image_of(version: str) -> str:
    """The image of compose.yaml, of this version."""
    found = re.search(r"image: (\S+/mssql/server):", (_ROOT / "compose.yaml").read_text("utf-8"))
    if found is None:
        raise NoServerError("compose.yaml names no image of SQL Server")
    return f"{found[1]}:{version}-latest"


def pull(engine: str, image: str) -> None:
    """Fetch the image. Raises `NoServerError`."""
    command = [engine, "pull", "--platform", "linux/amd64", image]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PULL_SECONDS, check=False
    )
    if done.returncode:
        raise NoServerError(f"{image} cannot be fetched: {_last_line(done.stderr)}")


@contextmanager
def container(engine: str, image: str) -> Iterator[str]:
    """A server of this image, which is removed in the end; its connection string."""
    password = f"Throw-away-{uuid.uuid4().hex}"
    settings = {
        "ACCEPT_EULA": "Y",
        "MSSQL_PID": "Developer",
        "MSSQL_SA_PASSWORD": password,
        "MSSQL_MEMORY_LIMIT_MB": str(_MEMORY_MB),
    }
    given = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    run = ["run", "--detach", "--platform", "linux/amd64", "--publish", "127.0.0.1::1433"]
    number = _output([engine, *run, *given, image])
    try:
        port = _output([engine, "port", number, "1433/tcp"]).splitlines()[0].rpartition(":")[2]
        yield (f"Server=127.0.0.1,{port};Database=master;Uid=sa;Pwd={password};{ENCRYPTION}")
    finally:
        subprocess.run([engine, "rm", "--force", number], capture_output=True, check=False)


def await_session(dsn: str, seconds: float = _START_SECONDS) -> None:
    """Until the server accepts a session. Raises the driver's last error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with closing(connect(dsn)):
                return
        except odbc().Error:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def describe(dsn: str) -> tuple[str, str | None]:
    """The server's version, edition and default collation; and its name if it only stands in for
    SQL Server.
    """
    text = (
        "SELECT CONVERT(nvarchar(300), @@VERSION),"
        " CONVERT(nvarchar(128), SERVERPROPERTY('Edition')),"
        " CONVERT(nvarchar(128), SERVERPROPERTY('Collation'))"
    )
    with closing(connect(dsn)) as connection:
        version, edition, collation = connection.execute(text).fetchone()
        stand_in = stand_in_of(connection)
    name = stand_in or version.partition("\n")[0].strip()
    return f"{name}; {edition}; {collation}", stand_in


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServerError(f"{' '.join(command[:2])}: {_last_line(done.stderr)}")
    return done.stdout.strip()


def _last_line(text: str) -> str:
    return next(iter(reversed(text.strip().splitlines())), "it says nothing")
