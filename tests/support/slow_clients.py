"""Clients that hold a port: each sends the beginning of a request, and then a byte now and then."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat

_PAUSE_SECONDS = 0.2


@contextmanager
def slow_clients(port: int, count: int = 300) -> Iterator[None]:
    """As many connections to the port of this machine; one that is ended comes again."""
    is_over = threading.Event()
    thread = threading.Thread(target=_hold, args=(port, count, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _hold(port: int, count: int, is_over: threading.Event) -> None:
    clients: dict[socket.socket, Iterator[bytes]] = {}
    while not is_over.wait(_PAUSE_SECONDS):
        while len(clients) < count:
            client = socket.socket()
            client.setblocking(False)  # noqa: FBT003 - its signature
            client.connect_ex(("127.0.0.1", port))
            clients[client] = chain([b"GET / HTTP/1.1\r\nX: "], repeat(b"x"))
        for client, texts in list(clients.items()):
            if not _sends(client, texts):
                client.close()
                del clients[client]
    for client in clients:
        client.close()


def _sends(client: socket.socket, texts: Iterator[bytes]) -> bool:
    """Whether the connection is still there; with the next bytes on it."""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
        ready = {event for _, events in selector.select(0) for event in (1, 2) if events & event}
    if selectors.EVENT_READ in ready:
        with suppress(BlockingIOError):
            return bool(_received(client))
    if selectors.EVENT_WRITE in ready:
        try:
            client.send(next(texts))
        except OSError:
            return False
    return True


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(4096)
    except ConnectionError:
        return b""
