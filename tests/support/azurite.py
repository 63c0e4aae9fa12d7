"""Azurite, a local ADLS: npm's package of that name, behind a proxy that lists as Azure does."""

import base64
import hmac
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest

from support.ports import free_port
from support.waiting import until

# Of each Azurite; no secret.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_BLOB = re.compile(rb"<Blob><Name>([^<]*)</Name>.*?</Blob>", re.DOTALL)


@contextmanager
def azurite(container: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """An Azurite with a container. Yields the variables that are all that duesweep needs."""
    program, port = shutil.which("azurite-blob"), free_port()
    if program is None:
        pytest.skip("Azurite is not installed (docs/testing.md)")
    proxy = free_port()
    # Processes of their own: delta-rs may hold Python's lock while it waits for an answer.
    commands = (
        [program, "--blobPort", str(port), "--location", str(folder)],
        [sys.executable, __file__, str(proxy), str(port)],
    )
    library = {"PYTHONPATH": str(Path(__file__).parents[1])}
    with ExitStack() as stack:
        for command in commands:
            running = stack.enter_context(
                subprocess.Popen(
                    command, cwd=folder, env=os.environ | library, stdout=DEVNULL, stderr=DEVNULL
                )
            )
            stack.callback(running.terminate)
        address = f"http://127.0.0.1:{proxy}/{ACCOUNT}"
        until(lambda: _made(f"{address}/{container}?restype=container"))
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": address,
            "AZURE_ALLOW_HTTP": "true",
        }


def _made(url: str) -> bool:
    """Whether the container was created, by a request that is signed as Azure asks."""
    parts = urlsplit(url)
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    text = "\n".join([*lines, f"/{ACCOUNT}{parts.path}", parts.query.replace("=", ":")])
    sign = hmac.new(base64.b64decode(_KEY), text.encode(), "sha256").digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(sign).decode()}"
    request = Request(url, method="PUT", headers={**headers, "Content-Length": "0"})
    try:
        with urlopen(request, timeout=5) as answer:
            return bool(answer.status == 201)
    except OSError:
        return False


def _serve(port: int, azurite_port: int) -> None:
    """A proxy that leaves out blobs before `startFrom`, of which Azurite 3.35 knows nothing."""

    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            azurite = HTTPConnection("127.0.0.1", azurite_port, timeout=60)
            azurite.request(self.command, self.path, body, dict(self.headers.items()))
            answer = azurite.getresponse()
            (start,) = parse_qs(urlsplit(self.path).query).get("startFrom", [""])
            content = answer.read()
            content = _BLOB.sub(lambda blob: blob[0] * (blob[1] >= start.encode()), content)
            is_head = self.command == "HEAD"
            size = answer.getheader("Content-Length", "0") if is_head else str(len(content))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(content)
            azurite.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - the server's names

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
