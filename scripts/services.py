#!/usr/bin/env python3
"""Bring what Python's packages do not: scripts/services.py odbc|pgbouncer|rabbitmq ...

The machine's own services are used. If one is missing and apt-get exists, Debian's packages are
unpacked into .cache/services/<name>; nothing is installed, and no root is needed. The driver of
SQL Server (drivers/sqlserver/dsn.py) and the tests (tests/support/services.py) look there. Exits
with 2 if something could not be brought.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ROOT / ".cache" / "services"
PACKAGES = {
    "odbc": ("libodbc2", "libgssapi-krb5-2"),
    "pgbouncer": ("pgbouncer",),
    "rabbitmq": ("rabbitmq-server",),
}
# As tests/support/pooler.py looks for it.
_SBIN = "/usr/sbin:/usr/local/sbin:/usr/local/bin"
# As tests/support/rabbitmq/broker_server.py looks for it.
_BROKERS = ("/usr/lib/rabbitmq", "/opt/rabbitmq", "/usr/local/rabbitmq")
_LOADS_ODBC = """
import pyodbc, ctypes, sys
if sys.platform == "linux": ctypes.CDLL("libgssapi_krb5.so.2")
"""
_TOLD_LINES = 5


def main(names: list[str]) -> int:
    """Bring them, one after the other."""
    if not names or not set(names) <= PACKAGES.keys():
        print(f"Usage: scripts/services.py {'|'.join(PACKAGES)} ...", file=sys.stderr)
        return 2
    brought = [_bring(name) for name in names]
    return 0 if all(brought) else 2


def _bring(name: str) -> bool:
    """Whether it is there now."""
    if _machine_has(name) or _is_current(name):
        return True
    try:
        (ROOT / ".cache").mkdir(exist_ok=True)
        lock = (ROOT / ".cache" / "lock").open("a", encoding="utf-8")
    except OSError:
        return _say(
            f"{name} is missing, and this user may not write into {ROOT}: run scripts/services.py "
            f"{name} as its owner once, and let all users read its files."
        )
    with lock:
        # Two starts at once: the second waits, and then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _is_current(name) or _unpack(name)


def _machine_has(name: str) -> bool:
    if name == "rabbitmq":
        return any(any(Path(each).glob("**/sbin/rabbitmq-server")) for each in _BROKERS)
    if name == "pgbouncer":
        return shutil.which(name, path=_SBIN) is not None
    python = ROOT / ".venv" / "bin" / "python"
    command = [str(python if python.exists() else sys.executable), "-P", "-c", _LOADS_ODBC]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _stamp(name: str) -> str:
    """Libraries of another release of the system would not load."""
    try:
        system = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        system = " ".join(platform.uname())
    return f"{' '.join(PACKAGES[name])}\n{system}"


def _is_current(name: str) -> bool:
    try:
        return (SERVICES / name / "stamp").read_text(encoding="utf-8").strip() == _stamp(
            name
        ).strip()
    except OSError:
        return False


def _unpack(name: str) -> bool:
    packages = " ".join(PACKAGES[name])
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return _say(
            f"{name} is missing, and this machine has no apt-get to fetch it with: install what "
            f"Debian has as {packages}."
        )
    _say(f"Unpacking {packages} into .cache/services/{name}: once.")
    SERVICES.mkdir(parents=True, exist_ok=True)
    log = SERVICES / f"{name}.log"
    with tempfile.TemporaryDirectory(dir=SERVICES, prefix="apt-") as fetched:
        unfinished = Path(fetched) / "unfinished"
        try:
            with log.open("wb") as output:
                _fetch(name, Path(fetched), output)
                for package in Path(fetched, "cache", "archives").glob("*.deb"):
                    _run(["dpkg", "-x", str(package), str(unfinished)], output)
        except (OSError, subprocess.CalledProcessError):
            told = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TOLD_LINES:]
            return _say(
                *told,
                f"{name} could not be unpacked: see above, and {log}. Or install: {packages}.",
            )
        _make_movable(unfinished / "usr" / "lib" / "erlang")
        (unfinished / "stamp").write_text(_stamp(name), encoding="utf-8")
        shutil.rmtree(SERVICES / name, ignore_errors=True)
        unfinished.rename(SERVICES / name)
    return True


def _fetch(name: str, folder: Path, output: IO[bytes]) -> None:
    """With apt's state in folders of our own, so that neither root nor apt's locks are needed."""
    for each in ("lists/partial", "cache/archives/partial"):
        (folder / each).mkdir(parents=True)
    apt = ["apt-get", "--quiet", "--yes", "-o", f"Dir::State::Lists={folder}/lists"]
    apt += ["-o", f"Dir::Cache={folder}/cache", "-o", "Debug::NoLocking=1"]
    apt += ["-o", "APT::Sandbox::User=root"]
    _run([*apt, "update"], output)
    options = ["--download-only", "--no-install-recommends", "--no-upgrade"]
    _run([*apt, "install", *options, *PACKAGES[name]], output)


def _make_movable(erlang: Path) -> None:
    """Debian's erl looks for the rest of Erlang in /usr/lib/erlang, wherever it is itself."""
    script = erlang / "bin" / "erl"
    if not script.exists():
        return
    found = '$(dirname "$(dirname "$(readlink -f "$0")")")'
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR={found}\n"), "utf-8")
    for copy in erlang.glob("erts-*/bin/erl"):
        copy.unlink()
        copy.symlink_to(Path("../../bin/erl"))


def _run(command: list[str], output: IO[bytes]) -> None:
    subprocess.run(command, stdout=output, stderr=output, env=os.environ, check=True)


def _say(*lines: str) -> bool:
    """Not done, with the reason."""
    print(*lines, sep="\n", file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
