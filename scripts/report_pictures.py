"""Draws docs/images/report*.png: the report of the demonstration, in a headless Chromium.

`.venv/bin/python scripts/report_pictures.py` needs Chromium and pngquant (Debian's packages have
these names). Run it after a change of the report's looks or words.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from duesweep.operations.demo.server import EmbeddedServer

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_PHONE = 390
# No window of Chromium is narrower, so a phone's page is in a frame of a magnified page.
_NARROWEST = 500
_DARK = "--blink-settings=preferredColorScheme=0"
# Endpoints next to the demonstration's, for the table of several.
_OTHERS = ("Billing", "Reminders", "Returns", "Shipping", "Warehouse")


class _Picture(NamedTuple):
    name: str
    width: int
    height: int
    is_dark: bool = False


_ONE = [
    _Picture("report-light", 1120, 1900),
    _Picture("report-dark", 1120, 1900, is_dark=True),
    _Picture("report-phone", _PHONE, 2000),
    _Picture("report-top-light", 1120, 482),
    _Picture("report-top-dark", 1120, 482, is_dark=True),
    _Picture("report-top-phone", _PHONE, 664),
]
_FLEET = [_Picture("report-fleet", 1120, 410)]


def main() -> int:
    """Run the demonstration in a folder of its own, and draw its report."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if browser is None or shutil.which("pngquant") is None:
        print("scripts/report_pictures.py: install Chromium and pngquant", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="duesweep-") as folder:
        home = Path(folder)
        # The database's server may run as another user.
        home.chmod(0o755)
        _duesweep(home, "demo", "--folder", ".")
        config = home / "duesweep.toml"
        settings = tomllib.loads(config.read_text("utf-8"))
        with EmbeddedServer(home, port=urlsplit(settings["store"]["dsn"]).port):
            _duesweep(home, "pause", "Ship*", "--reason", "INC-17: the warehouse is down")
            for queue in (*["Shipping"] * 7, *["Billing"] * 5):
                _duesweep(home, "queue", "send", queue, "--body", "{}", "--delay", "1s")
            _draw(browser, home, _ONE)
            config.write_text(_fleet(settings), "utf-8")
            for name in _OTHERS:
                _duesweep(home, "setup", "--endpoint", name)
            _draw(browser, home, _FLEET)
    return 0


def _duesweep(home: Path, *arguments: str) -> None:
    subprocess.run([ROOT / "duesweep", *arguments], cwd=home, check=True, stdout=sys.stderr)


def _fleet(settings: dict[str, dict[str, object]]) -> str:
    """The configuration of the demonstration's endpoint and the others."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[defaults.{section}]")
        lines += [
            f"{name} = {json.dumps(one)}" for name, one in values.items() if name != "endpoint"
        ]
    for name in ("Sales.Orders", *_OTHERS):
        lines += ["[[endpoint]]", f'store.endpoint = "{name}"']
    return "\n".join(lines) + "\n"


def _draw(browser: str, home: Path, pictures: Sequence[_Picture]) -> None:
    _duesweep(home, "report", "--out", "report.html")
    for one in pictures:
        page, width = home / "report.html", max(one.width, _NARROWEST)
        zoom = width / one.width
        if zoom != 1:
            page = home / "framed.html"
            page.write_text(
                f'<!DOCTYPE html><body style="margin:0"><iframe src="report.html" style="border:0;'
                f'width:{one.width}px;height:{one.height}px;zoom:{zoom}"></iframe>'
            )
        drawn = home / f"{one.name}.png"
        command: list[str | Path] = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *([_DARK] if one.is_dark else []),
            *(f"--window-size={width},{round(one.height * zoom)}", f"--screenshot={drawn}", page),
        ]
        subprocess.run(command, check=True, capture_output=True)
        out = IMAGES / drawn.name
        subprocess.run(["pngquant", "--force", "--output", out, "256", drawn], check=True)


if __name__ == "__main__":
    sys.exit(main())
