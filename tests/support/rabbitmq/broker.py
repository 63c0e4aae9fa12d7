"""A vhost of the tests' broker, seen from outside: its queues, exchanges and bindings."""

import json
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
import pika.exceptions

from support.rabbitmq.broker_server import BrokerServer
from support.waiting import until

_INTERNAL_ERROR = 541


class Broker:
    """`vhost` of `server`. Its own connection is apart from those under test."""

    def __init__(self, server: BrokerServer, vhost: str) -> None:
        self.server = server
        self.vhost = vhost
        # Over HTTP: rabbitmqctl takes a second to start.
        self.api("vhosts/{vhost}", "PUT")
        self.permit(write=".*")
        self.connect()

    def connect(self) -> None:
        """Open its own connection; again after the node was stopped."""
        # Idle for longer than a heartbeat allows, while a test waits for something else.
        self.connection = pika.BlockingConnection(pika.URLParameters(f"{self.url}?heartbeat=0"))
        self.channel = self.connection.channel()

    @property
    def url(self) -> str:
        return self.server.url(self.vhost)

    def close(self) -> None:
        if self.connection.is_open:
            self.connection.close()
        self.api("vhosts/{vhost}", "DELETE")

    def permit(self, *, write: str) -> None:
        """Let publish to names that `write` matches, and configure and read everything."""
        rights = {"configure": ".*", "write": write, "read": ".*"}
        self.api("permissions/{vhost}/guest", "PUT", rights)

    def create(self, name: str, **arguments: Any) -> None:
        self.create_queue(name, **arguments)
        self.channel.exchange_declare(name, "fanout", durable=True)
        self.channel.queue_bind(name, name)

    def create_queue(self, name: str, **arguments: Any) -> None:
        """A queue alone, a quorum queue unless `arguments` (underlines for hyphens) say more."""
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(
            name, durable=True, arguments={"x-queue-type": "quorum", **named}
        )

    def delete(self, name: str) -> None:
        self.channel.queue_delete(name)
        self.channel.exchange_delete(name)

    def take(self, queue: str) -> list[Any]:
        """Take everything that lies in a queue: (method, properties, body) each."""
        # A quorum queue of a node that was killed may answer no read for some time.
        deadline = time.monotonic() + 120
        while True:
            try:
                return self._take(queue)
            except pika.exceptions.ConnectionClosedByBroker as error:
                if error.reply_code != _INTERNAL_ERROR or time.monotonic() > deadline:
                    raise
                # Unacknowledged messages are in the queue again.
                self.connect()

    def _take(self, queue: str) -> list[Any]:
        taken = []
        while True:
            method, properties, body = self.channel.basic_get(queue)
            if method is None:
                break
            taken.append((method, properties, body))
        if taken:
            self.channel.basic_ack(multiple=True)
        return taken

    def take_all(self, queue: str, count: int, seconds: float = 180) -> list[Any]:
        """Take `count` messages, as they arrive."""
        taken: list[Any] = []
        deadline = time.monotonic() + seconds
        while len(taken) < count and time.monotonic() < deadline:
            taken += self.take(queue)
            self.connection.sleep(0.01)
        return taken

    def drain(self, queue: str) -> list[Any]:
        """Take everything that lies in a queue, quickly; the properties of each."""
        taken = []
        least = self.count(queue)
        deadline = time.monotonic() + 180
        for method, properties, _ in self.channel.consume(
            queue, auto_ack=True, inactivity_timeout=1
        ):
            if method is not None:
                taken.append(properties)
            # A broker may be silent for a while on a busy machine.
            elif len(taken) >= least or time.monotonic() > deadline:
                break
        self.channel.cancel()
        return taken

    def count(self, queue: str) -> int:
        found: int = self.channel.queue_declare(queue, passive=True).method.message_count
        return found

    def api(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the management API; `{vhost}` in `path` is the vhost's name."""
        url = f"{self.server.management_url}/api/{path.format(vhost=quote(self.vhost, safe=''))}"
        request = Request(url, method=method)
        request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urlopen(request, data, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def definitions(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        found: dict[str, Sequence[Mapping[str, Any]]] = self.api("definitions/{vhost}")
        return found

    def told_of_queues(self) -> dict[str, tuple[Any, Any, int]]:
        """By queue, the policy, its settings and how many messages there are, as the management API
        lists them. The queues tell it twice a second, and it repeats an answer for a while.
        """
        return {
            one["name"]: (
                one.get("policy"),
                one.get("effective_policy_definition") or None,
                one.get("messages", 0),
            )
            for one in self.api("queues/{vhost}")
        }

    def cut_connections(self) -> int:
        """Cut every connection of duesweep's to the vhost; how many there were."""
        cut = 0
        for one in self.api("vhosts/{vhost}/connections"):
            if one.get("client_properties", {}).get("connection_name") == "duesweep":
                # One that is gone already is listed for some seconds more.
                with suppress(HTTPError):
                    self.api(f"connections/{quote(one['name'], safe='')}", "DELETE")
                    cut += 1
        return cut

    def wait_for(self, queue: str, count: int) -> None:
        """Until `count` messages lie in a queue."""
        until(lambda: self.count(queue) >= count)
