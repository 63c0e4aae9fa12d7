"""A RabbitMQ of the tests' own: node name, ports, folder and also Erlang's port mapper."""

import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.logins import Authority
from support.ports import free_port
from support.services import UNPACKED, environment_of
from support.waiting import until

_UNPACKED = UNPACKED / "rabbitmq"
_FOLDERS = (
    *(Path("/usr/lib/rabbitmq"), Path("/opt/rabbitmq"), Path("/usr/local/rabbitmq")),
    _UNPACKED / "usr" / "lib" / "rabbitmq",
)
_START_SECONDS = 300


def installed() -> Path | None:
    """The folder of RabbitMQ's own scripts; None where it is not installed. A distribution's
    wrappers would change to a user of theirs.
    """
    found = [
        script.resolve().parent
        for folder in _FOLDERS
        for script in folder.glob("**/sbin/rabbitmq-server")
    ]
    return found[0] if found else None


class BrokerServer:
    """A node; `amqp` and `management` are its ports on loopback, user and password are guest."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self._scripts = scripts
        self.folder = folder
        self.authority = Authority(folder)
        self.amqp, self.tls, self.management, distribution, mapper = (free_port() for _ in range(5))
        is_unpacked = scripts.is_relative_to(_UNPACKED.resolve())
        self._environment = {
            **(environment_of("rabbitmq") if is_unpacked else os.environ),
            # The folder in which Erlang keeps the cookie by which its nodes know each other.
            "HOME": str(folder),
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"duesweep-{uuid.uuid4().hex[:8]}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none.config"),
            # Two schedulers are as many as the machine has cores; spinning ones would take them.
            # Quorum queues tell the management API of themselves twice a second.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none -rabbit quorum_tick_interval 500",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self.management}"

    def url(self, vhost: str = "%2F", port: int | None = None) -> str:
        """An AMQP URL of a vhost; through another port, a proxy's in front of it."""
        return f"amqp://guest:guest@127.0.0.1:{port or self.amqp}/{vhost}"

    def tls_url(self, vhost: str, host: str = "localhost") -> str:
        """The same with TLS, which asks for a certificate of `authority`. The node's own is for
        localhost.
        """
        return f"amqps://guest:guest@{host}:{self.tls}/{vhost}"

    def start(self, more: str = "") -> None:
        """Start the node, with `more` lines of configuration, and wait until it serves."""
        certificate, key = self.authority.sign("localhost")
        settings = [
            f"listeners.tcp.1 = 127.0.0.1:{self.amqp}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls}",
            f"ssl_options.cacertfile = {self.authority.certificate}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = true",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.management}",
            # So do the others; its figures are a second old at most.
            "collect_statistics_interval = 500",
            *(
                f"management.sample_retention_policies.{each} = 1"
                for each in ("global.minute", "basic.minute", "detailed.10")
            ),
            "log.console = false",
            more,
        ]
        (self.folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n", "utf-8")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management].\n", "utf-8")
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [self._scripts / "rabbitmq-server"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until(self._listens, _START_SECONDS)
        self.control("await_startup", "--timeout", str(_START_SECONDS))

    def _listens(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "output").read_text("utf-8", "replace"))
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.amqp)) == 0

    def control(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._scripts / "rabbitmqctl", "--quiet", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS + 30,
            check=False,
        )
        if done.returncode:
            log = (self.folder / "output").read_text("utf-8", "replace")
            raise RuntimeError(f"rabbitmqctl {arguments}: {done.stderr or done.stdout}\n{log}")
        return done.stdout

    def kill(self) -> None:
        """Kill the node. `start` starts it again on the same data."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the node, of which nothing is to stay, and the port mapper that came with it."""
        if self._process is None:
            return
        # Its group is its own: the node, and the shell that started it.
        with suppress(ProcessLookupError):
            self.kill()
        mapper = shutil.which("epmd", path=self._environment["PATH"])
        if mapper:
            # It refuses as long as it has not noticed that the node is gone.
            until(lambda: b"not allowed" not in self._end_mapper(mapper))

    def _end_mapper(self, mapper: str) -> bytes:
        return subprocess.run(
            [mapper, "-port", self._environment["ERL_EPMD_PORT"], "-kill"],
            env=self._environment,
            capture_output=True,
            check=False,
        ).stdout


@contextmanager
def running(scripts: Path, folder: Path) -> Iterator[BrokerServer]:
    server = BrokerServer(scripts, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
