"""Draws each docs/images/NAME.mmd as NAME.svg, by Mermaid in a headless Chromium.

`python scripts/diagrams.py` needs npm and Chromium; readers of the pages need neither. A picture
carries the hash of its source, which a test compares.
"""

import hashlib
import html
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_VERSION = "12.3.0"
_SETTINGS = {
    "startOnLoad": False,
    "theme": "neutral",
    "deterministicIds": True,
    "fontFamily": "sans-serif",
    # Labels in HTML are not shown by every program that shows SVG.
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "useMaxWidth": False, "rankSpacing": 30, "padding": 8},
    "sequence": {
        "useMaxWidth": False,
        "mirrorActors": False,
        "actorMargin": 20,
        "width": 100,
        "height": 50,
        "diagramMarginX": 10,
    },
}
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><body><div id="out"></div>
<script src="mermaid.min.js"></script>
<script>
mermaid.initialize(SETTINGS);
mermaid.render("diagram", SOURCE).then(
  (drawn) => { document.getElementById("out").textContent = drawn.svg; },
  (error) => { document.getElementById("out").textContent = "error: " + error; },
);
</script>
"""


def mark(source: str) -> str:
    """The first line of a picture."""
    return f"<!-- {hashlib.sha256(source.encode()).hexdigest()} -->"


def main() -> int:
    """Draw every diagram whose picture has another hash."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if browser is None:
        print("scripts/diagrams.py: install Chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in sorted(IMAGES.glob("*.mmd")):
            source, picture = file.read_text(encoding="utf-8"), file.with_suffix(".svg")
            if picture.exists() and picture.read_text(encoding="utf-8").startswith(mark(source)):
                continue
            if not (folder / "mermaid.min.js").exists():
                _fetch(folder)
            svg = _draw(browser, folder, source)
            if not svg.startswith("<svg"):
                print(f"{file.name}: {svg}", file=sys.stderr)
                return 1
            # Its lines are dark, and a page may be dark as well.
            svg = svg.replace("<svg ", '<svg style="background: #fff" ', 1)
            picture.write_text(f"{mark(source)}\n{svg}\n", encoding="utf-8")
            print(picture.relative_to(ROOT))
    return 0


def _fetch(folder: Path) -> None:
    command = ["npm", "pack", f"mermaid@{_VERSION}", "--silent"]
    packed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    with tarfile.open(folder / packed.stdout.strip()) as archive:
        script = archive.extractfile("package/dist/mermaid.min.js")
        assert script is not None
        (folder / "mermaid.min.js").write_bytes(script.read())


def _draw(browser: str, folder: Path, source: str) -> str:
    page = folder / "page.html"
    text = _PAGE.replace("SETTINGS", json.dumps(_SETTINGS)).replace("SOURCE", json.dumps(source))
    page.write_text(text, encoding="utf-8")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [browser, "--headless", *sandbox, "--disable-gpu", "--virtual-time-budget=20000"]
    command += ["--dump-dom", page.as_uri()]
    dom = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return html.unescape(dom.partition('<div id="out">')[2].partition("</div>")[0])


if __name__ == "__main__":
    sys.exit(main())
