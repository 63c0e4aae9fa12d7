"""A watcher on the shell."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.waiting import until

_ROOT = Path(__file__).parents[2]


class Watcher:
    """A watcher's process, and its log so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [each for each in found if each["event"] == name]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)

    @property
    def port(self) -> int:
        return int(self.events("listening")[0]["port"])

    @property
    def _root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str) -> str:
        """The page; the report may not be made yet."""
        pages: list[str] = []
        until(lambda: pages or pages.extend(self._page(path)) or pages)
        return pages[0]

    def _page(self, path: str) -> Iterator[str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=60
            ) as answer:
                yield answer.read().decode()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise

    def metrics(self) -> dict[str, float]:
        """What Prometheus would read, without the names' prefix; of one endpoint."""
        families = text_string_to_metric_families(self.page("/metrics"))
        return {s.name.removeprefix("duesweep_"): s.value for f in families for s in f.samples}

    def health(self) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/health", timeout=60
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@contextmanager
def watching(file: Path, *options: str, name: str = "watch") -> Iterator[Watcher]:
    """Watch with this configuration; the log is next to it, `<name>.log`."""
    log = file.parent / f"{name}.log"
    command = [sys.executable, "-m", "duesweep", "watch", "--config", str(file), *options]
    with log.open("wb") as stderr, ExitStack() as stack:
        # A shell that starts the tests in the background lets them, and their children, ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            command,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": str(_ROOT / "lib")},
        )
        signal.signal(signal.SIGINT, before)
        stack.callback(process.wait, 120)
        stack.callback(process.kill)
        watcher = Watcher(process, log)
        until(lambda: process.poll() is not None or watcher.events("watching"))
        yield watcher
