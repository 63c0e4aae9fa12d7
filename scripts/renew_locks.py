"""Renew the locks: scripts/renew_locks.py [--jars] [argument of uv ...]. Needs uv.

requirements.lock is for every extra and every Python from 3.11, with hashes; scripts/program.txt
names its packages that duesweep itself needs; scripts/audit.lock and scripts/site.lock are
the tools of scripts/audit.sh and scripts/site.sh, from the .in files next to them. Locked packages
keep their versions; `--upgrade` takes new ones of everything, `--upgrade-package <name>` of
one. `--jars` renews lib/duesweep/drivers/jars.toml alone, from the coordinates in it; Spark
resolves them.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
JARS = ROOT / "lib" / "duesweep" / "drivers" / "jars.toml"
# Spark ships these itself, newer or of the same line; a second copy would only take sides with one
# of them. The last two hold annotations, which nothing reads at run time.
SHIPPED_WITH_SPARK = (
    "com.fasterxml.*:*",
    "com.github.luben:*",
    "com.google.*:*",
    "commons-*:*",
    "io.airlift:*",
    "org.antlr:*",
    "org.apache.*:*",
    "org.locationtech.*:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.*:*",
    "javax.annotation:*",
    "org.checkerframework:*",
)
# Spark's name of a resolved file: a group has no underline, and a version begins with a digit.
_FILE = re.compile(r"(?P<group>[^_\s]+)_(?P<name>\S+?)-(?P<version>\d\S*)\.jar")
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
        [*command, "--extra", "all"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    names = sorted({line.partition("==")[0] for line in done.stdout.splitlines()})
    (SCRIPTS / "program.txt").write_text("\n".join([*names, ""]), encoding="utf-8")


def renew_jars() -> None:
    """Replace the hashes in jars.toml by the hashes of the jars that its coordinates name."""
    text = JARS.read_text(encoding="utf-8")
    head = text[: text.index("[files.")].rstrip()
    tables = []
    for line, coordinates in tomllib.loads(text)["coordinates"].items():
        with tempfile.TemporaryDirectory() as ivy:
            files = sorted(resolve(coordinates, Path(ivy)).glob("*.jar"))
            lines = [f'"{_coordinate(file)}" = "{_sha256(file)}"' for file in files]
        key = line if line.isalpha() else f'"{line}"'
        tables.append("\n".join([f"[files.{key}]", *lines]))
    JARS.write_text("\n\n".join([head, *tables, ""]).rstrip() + "\n", encoding="utf-8")


def resolve(coordinates: Sequence[str], ivy: Path) -> Path:
    """Let Spark resolve coordinates. Returns the folder with the jars. No session is started."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - uv needs no Spark

    options = ["--packages", ",".join(coordinates)]
    options += ["--exclude-packages", ",".join(SHIPPED_WITH_SPARK)]
    options += ["--conf", f"spark.jars.ivy={ivy}", "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(options)
    launch_gateway().shutdown()  # type: ignore[no-untyped-call]  # PySpark gives it no types
    return ivy / "jars"


def _coordinate(file: Path) -> str:
    found = _FILE.fullmatch(file.name)
    assert found is not None, file
    return ":".join(found.groups())


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


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
