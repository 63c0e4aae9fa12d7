"""Fetch the jars of jars.lock: fetch_jars.py [folder], by default .cache/jars.

From Maven Central, or from the mirror that DEFAULT_ARTIFACT_REPOSITORY names, as for Spark itself.
Each is compared with its SHA-256. Needs Python alone: scripts/environment.py fetches them while pip
installs PySpark.
"""

import base64
import hashlib
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "jars.lock"
JARS = ROOT / ".cache" / "jars"
_CENTRAL = "https://repo1.maven.org/maven2/"
_SECONDS = 60
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

    @property
    def path(self) -> str:
        """Its path in a Maven repository."""
        group = self.group.replace(".", "/")
        return f"{group}/{self.name}/{self.version}/{self.name}-{self.version}.jar"


def locked(lock: str) -> Iterator[Jar]:
    """The jars that a jars.lock names."""
    return (Jar(**found.groupdict()) for found in _LINE.finditer(lock))


def fetch(folder: Path) -> None:
    """Put all jars in place at once. Raises `OSError` or `ValueError` if one cannot be
    fetched, or is another one.
    """
    jars = list(locked(LOCK.read_text(encoding="utf-8")))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="jars-") as temporary:
        unfinished = Path(temporary) / "jars"
        unfinished.mkdir()
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda jar: _fetch_one(jar, unfinished), jars):
                pass
        # A folder with a copy of the lock is a folder that is complete.
        shutil.copy(LOCK, unfinished / LOCK.name)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)


def _fetch_one(jar: Jar, folder: Path) -> None:
    request = _request(jar.path)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content = answer.read()
    except (OSError, HTTPException) as error:
        raise OSError(f"{request.full_url} could not be fetched: {error}") from error
    if hashlib.sha256(content).hexdigest() != jar.sha256:
        raise ValueError(f"{request.full_url} is not the file whose SHA-256 is in jars.lock")
    (folder / jar.file).write_bytes(content)


def _request(path: str) -> urllib.request.Request:
    """A mirror's URL may have a password, which is sent as HTTP wants it, but not printed."""
    repository = urlsplit(os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", _CENTRAL))
    person, _, host = repository.netloc.rpartition("@")
    url = urlunsplit(repository._replace(netloc=host, path=f"{repository.path.rstrip('/')}/{path}"))
    request = urllib.request.Request(url)
    if person:
        secret = base64.b64encode(unquote(person).encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
    return request


def main() -> int:
    """Fetch them. Returns 1 if one cannot be fetched."""
    try:
        fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else JARS)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
