"""Ports of loopback for servers that cannot choose their own."""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Below the range out of which systems give ports to connections (Linux: from 32768): a port that is
# free now is not another connection by the time that the server binds it.
_PORTS = range(20_000, 32_000)
_LOCKS = Path(tempfile.gettempdir()) / f"duesweep-ports-{os.getuid()}"
# Held until this process ends: another one that runs tests takes other ports.
_held: list[Any] = []


# On which PySpark starts and looks for its own Connect server, whatever is set.
SPARK_CONNECT = 15_002


@contextmanager
def one_at_a_time(port: int) -> Iterator[None]:
    """Lock a port: no other process that runs tests uses it in the block."""
    with _lock(port) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    """A port without a server, which no other process that runs tests gets."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if _is_reserved(port):
            return port
    raise RuntimeError(f"There is no free port in {_PORTS}")


def _is_reserved(port: int) -> bool:
    lock = _lock(port)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            # As servers do: a port in TIME_WAIT can be used again.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True


def _lock(port: int) -> Any:
    _LOCKS.mkdir(exist_ok=True)
    return (_LOCKS / str(port)).open("w")
