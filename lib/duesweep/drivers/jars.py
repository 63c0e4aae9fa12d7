"""The jars that Spark needs and does not bring: Delta's, and the drivers of the databases.

jars.toml names them for each line of Spark, with their hashes. They are fetched from Maven Central
when Spark is first needed, by Python: with the proxies and the authorities of this machine.
`python -m duesweep.drivers.spark_start` fetches them before.
"""

import base64
import hashlib
import os
import stat
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit

from duesweep.core.errors import ConfigError, SparkError, lacks_descriptors

_LOCK = Path(__file__).with_name("jars.toml")
_FOLDER_VARIABLE = "DUESWEEP_JARS"
# Spark itself also reads it.
_MIRROR_VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
_CENTRAL = "https://repo1.maven.org/maven2"
# Of silence: a slow network may take longer for all of a jar.
_SILENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of jars.toml. `coordinate`: Maven's, `group:name:version`."""

    coordinate: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name in the folder: two groups may have artifacts of one name."""
        group, name, version = self.coordinate.split(":")
        return f"{group}_{name}-{version}.jar"

    @property
    def path(self) -> str:
        """Its place in a Maven repository."""
        group, name, version = self.coordinate.split(":")
        return f"{group.replace('.', '/')}/{name}/{version}/{name}-{version}.jar"


def read_lock() -> Mapping[str, Sequence[Jar]]:
    """The jars of this package's jars.toml: `every` for each Spark, and by line, such as `4.1`."""
    lines = tomllib.loads(_LOCK.read_text(encoding="utf-8"))["files"]
    return {line: [Jar(*each) for each in files.items()] for line, files in lines.items()}


def ready_jars(spark_version: str) -> Sequence[Path]:
    """The files for a version of Spark, compared with their hashes. Missing ones are fetched first.

    Raises `ConfigError` for another Spark, or if no folder can be written; `SparkError` if they
    cannot be fetched.
    """
    wanted = jars_for(spark_version)
    found = {jar: file for jar in wanted if (file := _found(jar)) is not None}
    missing = [jar for jar in wanted if jar not in found]
    if missing:
        folder = _writable_folder()
        _say(f"Fetching {len(missing)} jars for Spark into {folder}: once.")
        for number, jar in enumerate(missing, 1):
            found[jar] = _fetch(jar, folder)
            size = found[jar].stat().st_size / 1e6
            _say(f"  {number} of {len(missing)}: {jar.file}, {size:.1f} MB")
    return [found[jar] for jar in wanted]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def jars_for(version: str) -> Sequence[Jar]:
    """The jars for a version of Spark. Raises `ConfigError` for another Spark."""
    jars = read_lock()
    line = ".".join(version.split(".")[:2])
    if line not in jars:
        lines = " and ".join(sorted(jars.keys() - {"every"}))
        raise ConfigError(
            f"duesweep starts Spark {lines}, and PySpark {version} is installed",
            advice='run pip install "duesweep[spark]", or start duesweep by the spark-submit of '
            "that Spark, with its own Delta",
        )
    return [*jars["every"], *jars[line]]


def _folders() -> Iterator[Path]:
    """The possible folders. If this user's home cannot be written, it is a temporary one."""
    named = os.environ.get(_FOLDER_VARIABLE)
    if named:
        yield Path(named)
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a user may have no home
    if not cache.startswith("~"):
        yield Path(cache, "duesweep", "jars")
    yield Path(tempfile.gettempdir(), f"duesweep-{os.getuid()}", "jars")


def _found(jar: Jar) -> Path | None:
    """The file with the jar's content."""
    for folder in _folders():
        file = folder / jar.file
        try:
            if _is_own(folder) and hashlib.sha256(file.read_bytes()).hexdigest() == jar.sha256:
                return file
        except OSError as error:
            if lacks_descriptors(error):
                raise
    return None


def _writable_folder() -> Path:
    failures = []
    for folder in _folders():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True)
        except OSError as error:
            if lacks_descriptors(error):
                raise
            failures.append(f"{error.filename}: {error.strerror}")
            continue
        if _is_own(folder) and os.access(folder, os.W_OK):
            return folder
        failures.append(f"{folder} belongs to others, or cannot be written")
    raise ConfigError(
        f"There is no folder for Spark's jars ({'; '.join(failures)})",
        advice=f"name one with {_FOLDER_VARIABLE}",
    )


def _is_own(folder: Path) -> bool:
    """Whether no other user, but root, can replace files there. All users can name a folder in the
    temporary one."""
    if tempfile.gettempdir() not in map(str, folder.parents):
        return True
    parent = folder.parent.stat()
    return parent.st_uid == os.getuid() and not parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _fetch(jar: Jar, folder: Path) -> Path:
    """Put a jar in place at once: another start finds all of it, or nothing."""
    repository = _repository()
    # Its host: a mirror's address may have a password.
    server = repository.netloc.rpartition("@")[2] or repository.path
    try:
        with urllib.request.urlopen(_request(repository, jar), timeout=_SILENCE_SECONDS) as answer:
            content = answer.read()
    except (OSError, HTTPException, ValueError) as error:
        if lacks_descriptors(error):
            raise
        if isinstance(error, HTTPError):
            error.close()
        raise SparkError(
            f"{jar.file} could not be fetched from {server}: "
            f"{getattr(error, 'reason', None) or error}",
            transient=True,
            advice=f"where Maven Central is out of reach, name a mirror with {_MIRROR_VARIABLE}"
            f"=<url>, or put the files of {_LOCK} into {folder}",
        ) from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != jar.sha256:
        raise SparkError(
            f"{server} sent another {jar.file}: its SHA-256 is {sha256}, not {jar.sha256}",
            transient=False,
            advice=f"check the address in {_MIRROR_VARIABLE}, and the proxies",
        )
    try:
        return _written(content, folder / jar.file)
    except OSError as error:
        if lacks_descriptors(error):
            raise
        raise SparkError(
            f"{jar.file} could not be written to {folder}: {error.strerror}",
            transient=True,
            advice=f"make room there, or name another folder with {_FOLDER_VARIABLE}",
        ) from error


def _written(content: bytes, file: Path) -> Path:
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as unfinished:
        path = Path(unfinished.name)
        try:
            unfinished.write(content)
            unfinished.flush()
        except BaseException:
            # Each start would leave another one.
            path.unlink()
            raise
    path.chmod(0o644)
    return path.replace(file)


def _repository() -> SplitResult:
    try:
        repository = urlsplit(os.environ.get(_MIRROR_VARIABLE) or _CENTRAL)
        # An unescaped / or # in a password ends the server's name: this port is no number.
        _ = repository.port
    except ValueError as error:
        raise ConfigError(
            f"{_MIRROR_VARIABLE} is no address",
            advice="write / # ? and @ in its password as %2F %23 %3F and %40",
        ) from error
    return repository


def _request(repository: SplitResult, jar: Jar) -> urllib.request.Request:
    user, _, server = repository.netloc.rpartition("@")
    path = f"{repository.path.rstrip('/')}/{jar.path}"
    request = urllib.request.Request(repository._replace(netloc=server, path=path).geturl())
    if user:
        token = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request
