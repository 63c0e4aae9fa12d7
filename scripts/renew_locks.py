"""Renew the locks: scripts/renew_locks.py [--jars] [argument of uv ...]. Needs uv.

requirements.lock is for every extra and every Python from 3.11, with hashes; scripts/program.txt
names its packages that duesweep itself needs; scripts/audit.lock and scripts/site.lock are
the tools of scripts/audit.sh and scripts/site.sh, from the .in files next to them. Locked packages
keep their versions; `--upgrade` takes new ones of everything, `--upgrade-package <name>` of
one. `--jars` renews jars.lock alone, from the coordinates in it; Spark resolves them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_jars import LOCK as JARS_LOCK
from fetch_jars import hashes, resolve

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
_HASH = re.compile(r"^[0-9a-f]{64}  \S+\.jar\n?", re.MULTILINE)
_COMPILE = ("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11")
_PLAIN = ("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")


def renew(lock: Path, title: str, *arguments: str) -> None:
    """Write a lock, with its title as the first line."""
    with tempfile.TemporaryDirectory() as folder:
        # uv keeps the versions that it finds in its output file.
        pins = Path(folder) / lock.name
        shutil.copy(lock, pins)
        command = [*_COMPILE, *_PLAIN, "--generate-hashes", "--output-file", str(pins)]
        subprocess.run([*command, *arguments], cwd=ROOT, check=True)
        lock.write_text(f"{title}\n{pins.read_text(encoding='utf-8')}", encoding="utf-8")


def renew_program(lock: Path) -> None:
    """Write the names of the packages that duesweep needs, as the lock has them."""
    command = [*_COMPILE, *_PLAIN, "--constraint", str(lock), "pyproject.toml"]
    done = subprocess.run(
        [*command, "--extra", "demo", "--extra", "otel"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    names = sorted({line.partition("==")[0] for line in done.stdout.splitlines()})
    (SCRIPTS / "program.txt").write_text("\n".join([*names, ""]), encoding="utf-8")


def renew_jars() -> None:
    """Replace the hashes in jars.lock by the hashes of the jars that its coordinates name."""
    text = JARS_LOCK.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as ivy:
        found = hashes(resolve(text, Path(ivy)))
    lines = "".join(f"{digest}  {name}\n" for name, digest in found.items())
    JARS_LOCK.write_text(f"{_HASH.sub('', text).rstrip()}\n\n{lines}", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Renew the jars' lock, or all others."""
    if arguments == ["--jars"]:
        renew_jars()
        return
    title = "# Every package of every extra, with hashes. To renew: scripts/renew_locks.py"
    renew(ROOT / "requirements.lock", title, "pyproject.toml", "--all-extras", *arguments)
    renew_program(ROOT / "requirements.lock")
    for name in ("audit", "site"):
        title = f"# What scripts/{name}.sh runs, with hashes. To renew: scripts/renew_locks.py"
        renew(SCRIPTS / f"{name}.lock", title, f"scripts/{name}.in", *arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
