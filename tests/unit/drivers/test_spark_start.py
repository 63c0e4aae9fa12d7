"""The start of Spark's JVM: options of spark-submit, and the needs of a master."""

import fcntl
import re
import shlex
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import ConfigError, SparkError, SweepStoppedError
from duesweep.core.submit import SubmitOptions, take_options
from duesweep.drivers import spark, spark_start
from duesweep.drivers.spark import SETTINGS
from duesweep.drivers.spark_start import SparkStart
from duesweep.operations.opening import open_spark
from duesweep.sweep.stop import Stop

_USERS_FILE = Path(__file__).parents[3] / "conf" / "spark-defaults.conf"
_JAVA_21 = "echo 'openjdk version \"21.0.5\" 2024-10-15' >&2"


@pytest.mark.parametrize(
    ("line", "taken", "rest"),
    [
        ("sweep --json", "", "sweep --json"),
        ("--master local[2] sweep", "--master local[2]", "sweep"),
        ("sweep --conf a=b --json --jars=x.jar", "--conf a=b --jars x.jar", "sweep --json"),
        ("sweep --conf=a=b=c", "--conf a=b=c", "sweep"),
        ("sweep --name --json", "--name --json", "sweep"),
        ("sweep --config f --set a=b", "", "sweep --config f --set a=b"),
        ("sweep --load-spark-defaults", "--load-spark-defaults", "sweep"),
        ("list -- --master x", "", "list -- --master x"),
        ("sweep --name=", "--name ''", "sweep"),
    ],
)
def test_options_of_spark_submit_may_stand_anywhere(line: str, taken: str, rest: str) -> None:
    options, left = take_options(shlex.split(line))

    assert (list(options.words), left) == (shlex.split(taken), shlex.split(rest))


@given(st.lists(st.sampled_from(["sweep", "--json", "--conf", "a=b", "--jars=x", "--", "--name"])))
def test_options_that_were_taken_mean_the_same_on_another_command_line(words: list[str]) -> None:
    try:
        options, rest = take_options(words)
    except ConfigError:
        return

    again, left = take_options([*options.words, *rest])

    assert (list(again.words), left) == (list(options.words), rest)


def test_option_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="--driver-memory, an option of spark-submit, needs a"):
        take_options(["sweep", "--driver-memory"])


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a script the Java of JAVA_HOME."""

    def make(script: str) -> None:
        program = tmp_path / "java home" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        program.chmod(stat.S_IRWXU)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java home"))

    return make


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "its jars"
    folder.mkdir()
    for name in ("b.jar", "a.jar", "c.txt"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 1", "does not run; install it"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11; install it"),
        ("echo Java", "does not say its version: Java"),
    ],
)
def test_java_that_spark_does_not_run_on_is_refused(
    script: str, says: str, java: Callable[[str], None], jars: Path
) -> None:
    java(script)

    with pytest.raises(ConfigError) as caught:
        SparkStart(jars).make_ready()

    assert says in str(caught.value)


def _started(start: SparkStart, *, master: str = "local[2]") -> tuple[Mapping[str, str], list[str]]:
    """The variables, and the words of the one for spark-submit."""
    variables = start.make_ready(master)
    *words, last = shlex.split(variables["PYSPARK_SUBMIT_ARGS"])
    assert last == "pyspark-shell"
    return variables, words


def _values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def test_local_session_has_jars_settings_and_what_the_user_adds(
    java: Callable[[str], None], jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(_JAVA_21)
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    line = "--driver-class-path x.jar --conf a=it's --driver-class-path y.jar --jars z.jar"
    options, _ = take_options(shlex.split(line.replace("'", "\\'")))

    variables, words = _started(SparkStart(jars, options))

    assert _values(words, "--master") == ["local[2]"]
    assert _values(words, "--driver-class-path") == [f"{jars}/a.jar:{jars}/b.jar:x.jar:y.jar"]
    assert _values(words, "--jars") == ["z.jar"]
    assert _values(words, "--conf")[-1] == "a=it's"
    assert "log4j2.properties" in _values(words, "--conf")[0]
    (settings,) = _values(words, "--properties-file")
    assert Path(settings).read_bytes() == _USERS_FILE.read_bytes()
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert Path(variables["SPARK_HOME"], "bin", "spark-submit").exists()


@pytest.mark.parametrize(
    ("line", "variable", "expected"),
    [
        ("", None, "local[2]"),
        ("", "local[3]", "local[3]"),
        ("--conf spark.master=local[4]", "local[3]", "local[4]"),
        ("--master local[5] --conf spark.master=local[4]", "local[3]", "local[5]"),
    ],
)
def test_master_is_that_of_the_command_line_then_of_the_environment(
    line: str,
    variable: str | None,
    expected: str,
    java: Callable[[str], None],
    jars: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java(_JAVA_21)
    monkeypatch.delenv("MASTER", raising=False)
    if variable is not None:
        monkeypatch.setenv("MASTER", variable)
    options, _ = take_options(shlex.split(line))

    _, words = _started(SparkStart(jars, options))

    assert _values(words, "--master") == [expected]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that are run for executors, which make nothing here."""
    ran: list[str] = []

    def print_nothing(script: str) -> str:
        ran.append(script)
        return "file:///environment.tar.gz"

    monkeypatch.setattr(spark_start, "_printed_by", print_nothing)
    monkeypatch.delenv("MASTER", raising=False)
    return ran


def test_cluster_gets_an_environment_the_package_and_jars(
    scripts: list[str], java: Callable[[str], None], jars: Path
) -> None:
    java(_JAVA_21)
    options, _ = take_options(
        shlex.split("--master spark://h:7077 --archives a#b --py-files p.zip")
    )

    variables, words = _started(SparkStart(jars, options))

    assert scripts == ["build_environment.py", "build_package.py"]
    assert _values(words, "--archives") == ["file:///environment.tar.gz#environment,a#b"]
    assert _values(words, "--jars") == [f"{jars}/a.jar,{jars}/b.jar"]
    (files,) = _values(words, "--py-files")
    assert files.endswith("/build/duesweep.zip,p.zip")
    assert variables["PYSPARK_PYTHON"] == "./environment/bin/python3"
    assert "SPARK_LOCAL_IP" not in variables


def test_python_that_the_user_names_gets_the_package(
    scripts: list[str], java: Callable[[str], None], jars: Path
) -> None:
    java(_JAVA_21)
    options = SubmitOptions((("--conf", "spark.pyspark.python=/opt/python3"),))

    variables, words = _started(SparkStart(jars, options), master="local-cluster[2,1,1024]")

    assert scripts == ["build_package.py"]
    assert variables["PYSPARK_PYTHON"] == "/opt/python3"
    assert len(_values(words, "--jars")) == 1


def test_spark_of_the_user_gets_the_options_alone(java: Callable[[str], None]) -> None:
    java(_JAVA_21)

    variables = SparkStart(None, SubmitOptions((("--packages", "a:b:1"),))).make_ready()

    assert variables == {"PYSPARK_SUBMIT_ARGS": "--packages a:b:1 pyspark-shell"}


def test_settings_of_every_session_are_in_the_users_file() -> None:
    lines = [line.split(None, 1) for line in _USERS_FILE.read_text("utf-8").splitlines()]

    assert SETTINGS.items() <= {line[0]: line[1] for line in lines if len(line) == 2}.items()


_FETCH = """
import shutil, sys
from pathlib import Path
root = Path(__file__).parent.parent
print("who asks?", file=sys.stderr)
if (root / "no network").exists():
    sys.exit(1)
jars = root / ".cache" / "jars"
jars.mkdir()
(jars / "delta.jar").touch()
shutil.copy(root / "jars.lock", jars)
"""
_TRAIN = """
import os, re, sys
from pathlib import Path
if (Path(__file__).parent.parent / "no archive").exists():
    sys.exit(1)
archive = re.search('ArchiveClassesAtExit="([^"]+)"', os.environ["PYSPARK_SUBMIT_ARGS"])[1]
Path(archive).write_text("classes")
"""


@pytest.fixture
def checkout(
    java: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A checkout whose environment is this process's, before its first session."""
    java(_JAVA_21)
    root = tmp_path / "a checkout"
    for folder in (root, root / "scripts", root / ".venv"):
        folder.mkdir()
    (root / "jars.lock").write_text("io.delta:delta:1")
    (root / "scripts" / "fetch_jars.py").write_text(_FETCH)
    (root / "scripts" / "train_jvm.py").write_text(_TRAIN)
    with monkeypatch.context() as patch:
        patch.delenv("MASTER", raising=False)
        patch.setattr(spark_start, "_CHECKOUT", root)
        patch.setattr(sys, "prefix", str(root / ".venv"))
        yield root


def _start_in(checkout: Path) -> list[str]:
    return _started(SparkStart(checkout / ".cache" / "jars"))[1]


def _archives(words: list[str]) -> list[str]:
    return re.findall('SharedArchiveFile="([^"]+)"', _values(words, "--conf")[0])


def test_checkout_fetches_jars_and_archives_classes_once(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = _start_in(checkout)

    fetched, archived = capfd.readouterr().err.splitlines()
    assert fetched == "Fetching the jars of jars.lock: once."
    assert archived.startswith("Archiving Spark's classes, for quick starts: once")
    assert _values(first, "--driver-class-path") == [f"{checkout}/.cache/jars/delta.jar"]
    (archive,) = _archives(first)
    assert Path(archive).read_text("utf-8") == "classes"
    assert _start_in(checkout) == first
    assert capfd.readouterr().err == ""


def test_changed_lock_is_another_set_of_jars_and_another_archive(checkout: Path) -> None:
    first = _start_in(checkout)
    shutil.rmtree(checkout / ".cache" / "jars")
    (checkout / "jars.lock").write_text("io.delta:delta:2")

    second = _start_in(checkout)

    assert _archives(first) != _archives(second) != []
    # The first one is not read any more.
    assert [str(file) for file in (checkout / ".venv").iterdir()] == _archives(second)


def test_first_look_makes_no_archive_and_comments_of_a_lock_fetch_nothing(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start = SparkStart(checkout / ".cache" / "jars", archives_classes=False)

    assert _archives(_started(start)[1]) == []
    assert capfd.readouterr().err == "Fetching the jars of jars.lock: once.\n"

    (checkout / "jars.lock").write_text("# renewed by another script\nio.delta:delta:1")
    assert _archives(_started(start)[1]) == []
    assert capfd.readouterr().err == ""


def test_archive_of_another_java_stays(checkout: Path, java: Callable[[str], None]) -> None:
    (archive_of_21,) = _archives(_start_in(checkout))

    java("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")

    assert _archives(_start_in(checkout)) != [archive_of_21]
    assert Path(archive_of_21).exists()


def test_jars_that_cannot_be_fetched_are_told_with_the_reason_and_a_way_out(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "no network").touch()

    with pytest.raises(SparkError) as caught:
        _start_in(checkout)

    assert caught.value.exit_code == 1
    assert "could not be fetched" in str(caught.value)
    assert "DEFAULT_ARTIFACT_REPOSITORY" in str(caught.value)
    assert "who asks?" in capfd.readouterr().err


def test_jvm_that_archives_no_classes_is_asked_once(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "no archive").touch()

    assert _archives(_start_in(checkout)) == []
    announced, failed = capfd.readouterr().err.splitlines()[-2:]
    assert "Archiving" in announced
    log = checkout / ".cache" / "class-archive.log"
    assert failed == f"They could not be archived, so Spark starts more slowly: see {log}"
    assert _archives(_start_in(checkout)) == []
    assert capfd.readouterr().err == ""


def test_checkout_that_this_user_may_not_change_tells_who_has_to_start_it(checkout: Path) -> None:
    # Root may write into any folder.
    (checkout / ".cache").touch()

    with pytest.raises(ConfigError) as caught:
        _start_in(checkout)

    assert str(caught.value).startswith(
        f"{checkout} is not ready, and this user may not write there; run "
        f"{checkout}/spark-submit.sh doctor as its owner once"
    )


@pytest.fixture
def held(checkout: Path) -> Iterator[None]:
    """Another process makes the checkout ready."""
    (checkout / ".cache").mkdir()
    with (checkout / ".cache" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("held")
def test_stop_ends_the_wait_for_another_process_that_makes_spark_ready(checkout: Path) -> None:
    asked: list[None] = []

    def is_stopped() -> bool:
        asked.append(None)
        return len(asked) > 2

    start = SparkStart(checkout / ".cache" / "jars", is_stopped=is_stopped)

    with pytest.raises(SweepStoppedError):
        start.make_ready()

    assert not (checkout / ".cache" / "jars").exists()


@pytest.mark.usefixtures("held")
def test_other_process_that_never_ends_is_told(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_start, "_PATIENCE_SECONDS", 0.2)

    with pytest.raises(SparkError) as caught:
        _start_in(checkout)

    assert caught.value.exit_code == 4
    assert f"it holds {checkout}/.cache/lock" in str(caught.value)


@pytest.mark.parametrize(
    ("is_asked", "error"), [(True, SweepStoppedError), (False, SparkError)], ids=["asked", "late"]
)
def test_wait_that_the_sweeps_time_ends_is_a_failure_and_not_a_stop(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, *, is_asked: bool
) -> None:
    """Else a sweep that never gets Spark would end well each time."""

    def stopped(start: SparkStart) -> None:
        assert start.is_stopped()
        raise SweepStoppedError("Stopped before Spark was ready")

    monkeypatch.setattr(spark, "spark_session", stopped)
    stop = Stop(at=0)
    if is_asked:
        stop.ask()

    with pytest.raises(error):
        open_spark(stop)


def test_configuration_that_is_given_as_a_setting_of_spark_is_refused() -> None:
    """Else `cancel` with a slip of the pen would act on another endpoint."""
    with pytest.raises(ConfigError, match=r"--conf staging\.toml is no setting of Spark"):
        take_options(["cancel", "--all", "--conf", "staging.toml"])


def test_two_threads_that_need_a_session_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    both = threading.Barrier(2)

    class Session:
        active: "Session | None" = None

        @classmethod
        def getActiveSession(cls) -> "Session | None":  # noqa: N802 - PySpark's
            return cls.active

    def start(*_: object) -> Session:
        started.append("a JVM")
        time.sleep(0.05)
        Session.active = Session()
        return Session.active

    def use(_: int) -> Session:
        both.wait()
        return spark.spark_session()  # type: ignore[return-value]

    monkeypatch.setattr(spark, "SparkSession", Session)
    monkeypatch.setattr(spark, "_open", start)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(use, range(2))

    assert started == ["a JVM"]
    assert first is second
