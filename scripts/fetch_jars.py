"""Fetch the jars of jars.lock into .cache/jars, so that no start of Spark resolves anything.

`--lock` writes the hashes of what was resolved into jars.lock instead of comparing them.
"""

import hashlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.java_gateway import launch_gateway

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
_HASH = re.compile(r"^([0-9a-f]{64})  (\S+\.jar)$", re.MULTILINE)


def resolve(coordinates: list[str], ivy: Path) -> None:
    """Let spark-submit resolve `coordinates` into `ivy`/jars; no Spark session is started."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        [
            *("--packages", ",".join(coordinates)),
            *("--exclude-packages", ",".join(SHIPPED_WITH_SPARK)),
            *("--conf", f"spark.jars.ivy={ivy}"),
            "pyspark-shell",
        ]
    )
    launch_gateway().shutdown()  # type: ignore[no-untyped-call]  # PySpark gives it no types


def hashes_of(folder: Path) -> dict[str, str]:
    """SHA-256 by file name."""
    return {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in sorted(folder.glob("*.jar"))
    }


def write_lock(found: dict[str, str]) -> None:
    """Replace the hashes in jars.lock."""
    kept = _HASH.sub("", LOCK.read_text()).rstrip("\n")
    lines = "".join(f"{digest}  {name}\n" for name, digest in found.items())
    LOCK.write_text(f"{kept}\n\n{lines}")


def main(arguments: list[str]) -> int:
    """Resolve, compare with the lock or renew it, and put the jars in place at once."""
    JARS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent, prefix="ivy-") as ivy:
        resolve(_COORDINATE.findall(LOCK.read_text()), Path(ivy))
        resolved = Path(ivy) / "jars"
        found = hashes_of(resolved)
        if arguments == ["--lock"]:
            write_lock(found)
        locked = {name: digest for digest, name in _HASH.findall(LOCK.read_text())}
        if found != locked:
            differing = sorted({name for name, _ in found.items() ^ locked.items()})
            print(
                f"jars.lock: what was fetched differs from the lock in {', '.join(differing)}. "
                "Compare the files; if they are right, run scripts/fetch_jars.py --lock.",
                file=sys.stderr,
            )
            return 1
        # Written last: a folder with a copy of the lock is a folder that is complete.
        shutil.copy(LOCK, resolved / LOCK.name)
        shutil.rmtree(JARS, ignore_errors=True)
        resolved.rename(JARS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
