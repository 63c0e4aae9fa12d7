"""What Spark's JVM is started with: Java, jars, settings, and what executors need.

PySpark starts spark-submit, which starts the JVM; it reads spark-submit's options in
PYSPARK_SUBMIT_ARGS. The other way round, spark-submit gives Python a pipe for a terminal and prints
its stderr on stdout.
"""

import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import IO

from duesweep.core.errors import ConfigError, SparkError, SweepStoppedError, lacks_descriptors
from duesweep.core.submit import SubmitOptions
from duesweep.core.world import Patience
from duesweep.drivers.lock import open_lock, try_lock

# With retries, as on a cluster: plain local[*] gives a task no second try.
DEFAULT_MASTER = "local[*,4]"
# Of these, spark-submit takes the last one only: ours and the user's become one.
_SEPARATORS = {"--archives": ",", "--driver-class-path": ":", "--jars": ",", "--py-files": ","}
# The last argument of spark-submit for a Python that started it.
_SHELL = "pyspark-shell"

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[2]
# To fetch the jars takes a minute, from a slow network some more.
_PATIENCE_SECONDS = 600.0
_JAVA_VERSION = re.compile(r'version "(\d+)')
_JAVA_ADVICE = (
    "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless or "
    "openjdk-21-jre-headless; Fedora, RHEL: java-17-openjdk-headless; macOS: brew install "
    "openjdk@17), or point JAVA_HOME at one"
)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class SparkStart:
    """The start of a session of this process. `jars`: the folder with the jars that Spark needs in
    addition to its own; None: the user's Spark has them. `archives_classes`: an archive of classes
    that is missing is made first, which takes half a minute. Once it `is_stopped`, it does not wait
    for another process.
    """

    jars: Path | None
    options: SubmitOptions = field(default_factory=SubmitOptions)
    archives_classes: bool = True
    is_stopped: Callable[[], bool] = field(default=_never, compare=False)

    def make_ready(self, master: str = DEFAULT_MASTER) -> Mapping[str, str]:
        """The variables of the environment with which PySpark starts the JVM. Makes
        missing parts: jars and an archive of classes, once, and the executors' archives.

        Raises `ConfigError` without Java, or if this user may not write; `SparkError` where another
        process makes the same, and does not end; `SweepStoppedError` if a stop ends that wait.
        """
        version = _java_version()
        if self.jars is None:
            return {"PYSPARK_SUBMIT_ARGS": shlex.join([*self.options.words, _SHELL])}
        java_options = [f'-Dlog4j2.configurationFile="{_HERE / "log4j2.properties"}"']
        if self.jars == own_jars():
            self._once(partial(_are_current, self.jars), _fetch_jars)
            archive = _class_archive(version)
            # Without it a start is slower: no reason to refuse a user who only reads this checkout.
            may_write = archive is not None and os.access(archive.parent, os.W_OK)
            if archive is not None and may_write and self.archives_classes:
                make = partial(_make_archive, archive, self.jars, java_options)
                self._once(archive.exists, make)
            if archive is not None and archive.exists() and archive.stat().st_size:
                java_options.append(f'-XX:SharedArchiveFile="{archive}"')
        master = self.options.master or os.environ.get("MASTER") or master
        return _variables(self.jars, master, java_options, self.options)

    def _once(self, is_current: Callable[[], bool], make: Callable[[], object]) -> None:
        """Make outdated parts. Of two starts at once the second one waits, and then finds the
        work done. Any user can use ready parts, without the right to write.
        """
        if is_current():
            return
        lock = _CHECKOUT / ".cache" / "lock"
        try:
            lock.parent.mkdir(exist_ok=True)
            held = open_lock(lock)
        except OSError as error:
            if lacks_descriptors(error):
                raise
            raise ConfigError(
                f"{_CHECKOUT} is not ready, and this user may not write there",
                advice=f"run {_CHECKOUT}/spark-submit.sh doctor as its owner once, and let all "
                "users read the files it makes",
            ) from error
        patience = Patience(_PATIENCE_SECONDS, self.is_stopped)
        with held:
            while not try_lock(held):
                if not patience.wait(lambda: f"another process makes Spark ready, and has {lock}"):
                    if self.is_stopped():
                        raise SweepStoppedError("Stopped before Spark was ready")
                    raise SparkError(
                        f"Another process makes Spark ready, and has not ended: it holds {lock}",
                        transient=True,
                        advice="run this again later; if that process hangs, end it",
                    )
            if not is_current():
                make()


def own_jars() -> Path | None:
    """The folder for the jars of a checkout; None: this is none."""
    return _CHECKOUT / ".cache" / "jars" if (_CHECKOUT / "jars.lock").exists() else None


def _variables(
    jars: Path, master: str, java_options: Sequence[str], options: SubmitOptions
) -> Mapping[str, str]:
    files = sorted(map(str, jars.glob("*.jar")))
    joined: dict[str, list[str]] = {"--driver-class-path": files}
    # In these the driver is the only executor.
    if master != "local" and not master.startswith("local["):
        joined["--jars"] = files
    variables = {"SPARK_HOME": _spark_home()}
    if master.startswith("local"):
        python = sys.executable
        # Only this machine is to reach this driver, and Spark need not look for an address.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    elif own_jars() is None:
        python = os.environ.get("PYSPARK_PYTHON", "python3")
    else:
        python = "./environment/bin/python3"
        joined["--archives"] = [f"{_printed_by('build_environment.py')}#environment"]
    python = options.setting("spark.pyspark.python") or python
    # If tasks run on this process's own Python, the package is there: on a zip in `sys.path`
    # each task would spend 0.3 s, since Spark lets Python forget the contents of zips at the start
    # of a task.
    if python != sys.executable and own_jars() is not None:
        _printed_by("build_package.py")
        joined["--py-files"] = [str(_CHECKOUT / "build" / "duesweep.zip")]
    return variables | {
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": _submit_arguments(master, java_options, joined, options),
    }


def _submit_arguments(
    master: str,
    java_options: Sequence[str],
    joined: Mapping[str, Sequence[str]],
    options: SubmitOptions,
) -> str:
    """`joined`: values of the options that are ours and the user's."""
    words = ["--master", master]
    words += ["--conf", f"spark.driver.defaultJavaOptions={' '.join(java_options)}"]
    # Of two, spark-submit takes the last one.
    words += ["--properties-file", str(_HERE / "spark-defaults.conf")]
    words += options.without("--master", *_SEPARATORS).words
    for name, separator in _SEPARATORS.items():
        values = [*joined.get(name, ()), *options.all_of(name)]
        words += [name, separator.join(values)] if values else []
    return shlex.join([*words, _SHELL])


def _java_version() -> str:
    """What Java says of itself. Raises `ConfigError` without one that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        ran = subprocess.run(
            [java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        if lacks_descriptors(error):
            raise
        text = f"Spark needs Java 17 or 21, and {java} does not run"
        raise ConfigError(text, advice=_JAVA_ADVICE) from error
    told = ran.stdout.decode(errors="replace")
    found = _JAVA_VERSION.search(told)
    if found is None:
        raise ConfigError(f"{java} does not say its version: {told}")
    if found[1] not in {"17", "21"}:
        text = f"Spark needs Java 17 or 21, and {java} is Java {found[1]}"
        raise ConfigError(text, advice=_JAVA_ADVICE)
    return told


def _are_current(jars: Path) -> bool:
    """The folder's copy of the lock is written last."""
    try:
        return _content(jars / "jars.lock") == _content(_CHECKOUT / "jars.lock")
    except OSError:
        return False


def _content(lock: Path) -> str:
    """The lines of a lock, without comments."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def _fetch_jars() -> None:
    print("Fetching the jars of jars.lock: once.", file=sys.stderr)
    log = _CHECKOUT / ".cache" / "jars.log"
    with log.open("wb") as output:
        done = _run("fetch_jars.py", stderr=output)
    if done.returncode:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
        raise SparkError(
            "The jars of jars.lock could not be fetched: see above",
            transient=False,
            advice="where Maven Central is out of reach, name a mirror with "
            "DEFAULT_ARTIFACT_REPOSITORY=<url>, then run this again",
        )


def _class_archive(java_version: str) -> Path | None:
    """A third of a cold run goes into loading classes that never change; this file holds them as
    the JVM wants them in memory (class data sharing). An empty one says that it could not be
    made. None: not for this Python.
    """
    environment = _CHECKOUT / ".venv"
    if Path(sys.prefix) != environment:
        return None
    # A class path of other files, or of files elsewhere, is another archive; options of the JVM
    # that it names in the same line are not.
    told = [line for line in java_version.splitlines() if not line.startswith("Picked up ")]
    made_from = "\n".join([*told, _content(_CHECKOUT / "jars.lock")])
    # Worktrees may share an environment, and a machine may have both Javas.
    found = _JAVA_VERSION.search(java_version)
    java = found[1] if found else ""
    mine = zlib.crc32(str(_CHECKOUT).encode())
    return environment / f"classes-{mine}-java{java}-{zlib.crc32(made_from.encode())}.jsa"


def _make_archive(archive: Path, jars: Path, java_options: Sequence[str]) -> None:
    print("Archiving Spark's classes, for quick starts: once, half a minute.", file=sys.stderr)
    unfinished = archive.with_name(f"{archive.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    made = f'-XX:ArchiveClassesAtExit="{unfinished}"'
    variables = _variables(jars, "local[2]", [*java_options, made], SubmitOptions())
    with (_CHECKOUT / ".cache" / "class-archive.log").open("wb") as output:
        done = _run("train_jvm.py", variables, stdout=output, stderr=output)
    if done.returncode < 0:
        # A signal ended it, which says nothing of the JVM.
        return
    if done.returncode or not unfinished.exists():
        # Not tried again at each start: it takes half a minute.
        print(
            f"They could not be archived, so Spark starts more slowly: see {output.name}",
            file=sys.stderr,
        )
        # The JVM makes files that only may be read.
        unfinished.unlink(missing_ok=True)
        unfinished.write_bytes(b"")
    # Archives of earlier jars and updates of this Java: 190 MB each, which are not read any more.
    for old in archive.parent.glob(f"{archive.name.rpartition('-')[0]}-*.jsa"):
        old.unlink()
    unfinished.replace(archive)


def _printed_by(script: str) -> str:
    """The output of a script that makes something for executors."""
    done = _run(script, stdout=subprocess.PIPE)
    if done.returncode:
        raise ConfigError("What executors need could not be made", advice="see above")
    return done.stdout.decode().strip()


def _run(
    script: str,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a script of the checkout, which a terminal's Ctrl-C does not reach: where the command
    stops between its steps, it completes its files. If Ctrl-C ends the command at once, so
    it ends the script; unfinished files are made again.
    """
    return subprocess.run(
        [sys.executable, str(_CHECKOUT / "scripts" / script)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "SPARK_HOME": _spark_home(), **variables},
        process_group=0,
        check=False,
    )


def _spark_home() -> str:
    """PySpark's own Spark, whatever another one SPARK_HOME names."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigError("PySpark is not installed", advice="install duesweep again")
    return str(Path(found.origin).parent)


if __name__ == "__main__":
    # Once for a checkout.
    SparkStart(own_jars()).make_ready()
