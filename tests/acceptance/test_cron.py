"""The lines for a crontab: the same in the pages as from `schedule cron`, and run as cron does."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint

ROOT = Path(__file__).parents[2]
SCRIPT = "/opt/duesweep/spark-submit.sh"
FILE = "/opt/duesweep/duesweep.toml"
ENVIRONMENT = "/etc/duesweep/sales-orders.env"
_LINE = re.compile(r"^ *((?:[\d*/]+ ){5} .*)$", re.MULTILINE)

Capture = pytest.CaptureFixture[str]


def _lines(capsys: Capture, file: Path) -> list[str]:
    capsys.readouterr()
    assert main(["schedule", "cron", "--config", str(file)]) == 0
    return _LINE.findall(capsys.readouterr().out)


def test_pages_have_the_lines_that_the_command_prints(
    capsys: Capture, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUESWEEP_COMMAND", SCRIPT)
    file = endpoint.config_file()
    pages = (ROOT / "README.md", ROOT / "docs" / "operations.md")

    printed = [line.replace(str(file), FILE) for line in _lines(capsys, file)]

    assert [_LINE.findall(page.read_text(encoding="utf-8")) for page in pages] == [
        [line] for line in printed
    ]


def test_lines_work_with_the_environment_of_cron(
    capsys: Capture, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay_many(3, ["Billing"])
    file = endpoint.config_file()
    text = file.read_text(encoding="utf-8")
    without_dsn = re.sub(r"^.*dsn.*\n", "", text, flags=re.MULTILINE)
    assert without_dsn != text
    file.write_text(without_dsn, encoding="utf-8")
    environment = tmp_path / "of cron.env"
    environment.write_text(
        f"DUESWEEP_STORE__DSN={shlex.quote(endpoint.dsn)}\n"
        # Only for this checkout, which may not be installed.
        f"PYTHONPATH={shlex.quote(str(ROOT / 'lib'))}\n",
        encoding="utf-8",
    )

    with monkeypatch.context() as shell:
        shell.setenv("DUESWEEP_STORE__DSN", endpoint.dsn)
        lines = _lines(capsys, file)

    for line in lines:
        command = line.split("  ", 1)[1].replace(r"\%", "%")
        command = command.replace(ENVIRONMENT, shlex.quote(str(environment)))
        done = subprocess.run(
            ["env", "-i", "PATH=/usr/bin:/bin", "/bin/sh", "-c", command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line

    (swept,) = (tmp_path / "duesweep-sales-orders.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(swept)["dispatched"] == 3
    assert endpoint.waiting() == []
