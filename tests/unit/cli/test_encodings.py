"""Texts that are not UTF-8, on the command line and in the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import ROOT

_TEXT = b"M\xfcller"


def _ended(*words: str | bytes, **environment: bytes) -> tuple[int, str]:
    """The exit code of a command, and its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "duesweep", *words],
        env={**os.environb, b"PYTHONPATH": bytes(ROOT / "lib")}
        | {name.encode(): value for name, value in environment.items()},
        cwd="/",
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["pause", _TEXT, "--reason", "x"],
        ["pause", "Billing", "--reason", _TEXT],
        ["show", _TEXT],
        ["errors", "show", _TEXT],
        ["cancel", "key", "--reason", _TEXT],
        ["queue", "send", "Billing", "--body", "{}", "--header", b"A=" + _TEXT],
        ["setup", "--print-sql", "--grant-to", _TEXT],
        ["sweep", "--set", b"store.name=" + _TEXT],
    ],
)
def test_argument_is_refused(words: list[str | bytes]) -> None:
    code, told = _ended(*words)

    assert (code, "is not UTF-8. Give it in UTF-8" in told) == (2, True), told
    assert told.count("\n") == 1


def test_path_may_have_any_bytes(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/" + _TEXT
    with open(file, "wb") as written:  # noqa: PTH123 - its name is bytes
        written.write(b'store.kind = "no such"')

    code, told = _ended("sweep", "--config", file)

    assert (code, "store.kind is wrong" in told) == (2, True), told


@pytest.mark.parametrize("variable", ["STORE__DSN", "METRICS__PUSHGATEWAY", "STORE__NAME"])
def test_setting_is_refused_and_a_secret_is_not_shown(variable: str) -> None:
    settings = {"STORE__DSN": b"postgresql://x@127.0.0.1:1/x", "STORE__ENDPOINT": b"Sales"}
    settings |= {"LEDGER__ROOT": b"./ledger", variable: b"http://x:secret@" + _TEXT}

    code, told = _ended("sweep", **{f"DUESWEEP_{name}": text for name, text in settings.items()})

    assert (code, "it is not UTF-8" in told, "secret" in told) == (2, True, False), told
