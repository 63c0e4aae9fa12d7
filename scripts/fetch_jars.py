"""Fetch the jars of jars.lock: fetch_jars.py [folder], by default .cache/jars.

Spark resolves them, so it takes them from its repository, or from the mirror that
DEFAULT_ARTIFACT_REPOSITORY names. Each is compared with its SHA-256.
"""

import hashlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "jars.lock"
JARS = ROOT / ".cache" / "jars"
# Spark ships these itself, newer or of the same line; a second copy would only take sides with one
# of them. The last two hold annotations, which nothing reads at run time.
SHIPPED_WITH_SPARK = (
    "com.fasterxml.*:*",
    "com.github.luben:*",
    "com.google.*:*",
    "commons-*:*",
    "io.airlift:*",
    "org.apache.*:*",
    "org.locationtech.*:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.*:*",
    "javax.annotation:*",
    "org.checkerframework:*",
)
_COORDINATE = re.compile(r"^[^#\s:]+:[^\s:]+:[^\s:]+$", re.MULTILINE)
# `<sha256>  <group>_<artifact>-<version>.jar`: a group has no underline, and a version begins with
# a digit.
_LINE = re.compile(
    r"^(?P<sha256>[0-9a-f]{64})  (?P<group>[^_\s]+)_(?P<name>\S+?)-(?P<version>\d\S*)\.jar$",
    re.MULTILINE,
)


class Jar(NamedTuple):
    """A line of jars.lock."""

    sha256: str
    group: str
    name: str
    version: str

    @property
    def file(self) -> str:
        """Its name in the folder: two groups may have artifacts of one name."""
        return f"{self.group}_{self.name}-{self.version}.jar"


def locked(lock: str) -> Iterator[Jar]:
    """The jars that a jars.lock names."""
    return (Jar(**found.groupdict()) for found in _LINE.finditer(lock))


def fetch(folder: Path) -> None:
    """Put all jars in place at once. Raises `ValueError` if Spark resolved others."""
    lock = LOCK.read_text(encoding="utf-8")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="jars-") as ivy:
        jars = resolve(lock, Path(ivy))
        differing = hashes(jars).items() ^ {jar.file: jar.sha256 for jar in locked(lock)}.items()
        if differing:
            names = ", ".join(sorted({name for name, _ in differing}))
            raise ValueError(f"The fetched jars differ from jars.lock in {names}")
        # A folder with a copy of the lock is a folder that is complete.
        shutil.copy(LOCK, jars / LOCK.name)
        shutil.rmtree(folder, ignore_errors=True)
        jars.rename(folder)


def resolve(lock: str, ivy: Path) -> Path:
    """Let Spark resolve the coordinates of a jars.lock. Returns the folder with the jars. No
    session is started.
    """
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - reading a lock needs no Spark

    options = ["--packages", ",".join(_COORDINATE.findall(lock))]
    options += ["--exclude-packages", ",".join(SHIPPED_WITH_SPARK)]
    options += ["--conf", f"spark.jars.ivy={ivy}", "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(options)
    launch_gateway().shutdown()  # type: ignore[no-untyped-call]  # PySpark gives it no types
    return ivy / "jars"


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each jar of a folder, by its name."""
    return {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in sorted(folder.glob("*.jar"))
    }


def main() -> int:
    """Fetch them. Returns 1 if others came."""
    try:
        fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else JARS)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
