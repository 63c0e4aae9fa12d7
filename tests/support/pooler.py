"""A PgBouncer in front of a PostgreSQL server of the tests."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.ports import free_port
from support.services import UNPACKED, environment_of, is_missing
from support.waiting import until

_UNPACKED = UNPACKED / "pgbouncer"
_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", str(_UNPACKED / "usr" / "sbin"))


def installed() -> str | None:
    """PgBouncer's program, if it is there."""
    return shutil.which("pgbouncer", path=os.pathsep.join(_FOLDERS))


@contextmanager
def pooler(
    server: str, folder: Path, mode: str, *, port: int | None = None, **settings: object
) -> Iterator[str]:
    """A pooler before the server of a dsn, in a mode of PgBouncer, with its defaults but for
    `settings`; the dsn of the same database behind it.
    """
    program = installed()
    if program is None:
        is_missing("pgbouncer")
    parts, port = conninfo_to_dict(server), port or free_port()
    users, file = folder / f"users-{port}", folder / f"pgbouncer-{port}.ini"
    known = {"postgres", str(parts.get("user", "postgres"))}
    users.write_text("".join(f'"{name}" ""\n' for name in known), "utf-8")
    all_settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": users,
        "pool_mode": mode,
        **settings,
    }
    lines = [f"{name} = {value}" for name, value in all_settings.items()]
    databases = f"[databases]\n* = host={parts['host']} port={parts['port']}\n"
    file.write_text(f"{databases}[pgbouncer]\n" + "\n".join(lines) + "\n", "utf-8")
    # It refuses to run as root.
    user = pwd.getpwnam("nobody").pw_name if os.getuid() == 0 else None
    with (folder / f"pgbouncer-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(file)],
            user=user,
            env=environment_of("pgbouncer"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: _listens(process, port, folder))
        yield make_conninfo(server, host="127.0.0.1", port=port)
    finally:
        process.kill()
        process.wait()


def _listens(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError((folder / f"pgbouncer-{port}.log").read_text("utf-8", "replace"))
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
