"""How a session of this process is started: Java, jars, settings, and what executors need.

The other way round, started by spark-submit, Python has a pipe for a terminal, and its stderr is
printed on stdout.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from duesweep.core.errors import ConfigError, DuesweepError, ExitCode
from duesweep.core.result import exit_code_of
from duesweep.core.submit import SubmitOptions
from duesweep.drivers.jars import jars_for, ready_jars
from duesweep.drivers.jvm import find_java

# With retries, as on a cluster: plain local[*] gives a task no second try.
DEFAULT_MASTER = "local[*,4]"
# Of these, spark-submit takes the last one only: ours and the user's become one.
_SEPARATORS = {"--archives": ",", "--driver-class-path": ":", "--jars": ",", "--py-files": ","}
# The last argument of spark-submit for a Python that started it.
_SHELL = "pyspark-shell"

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[2]


@dataclass(frozen=True, slots=True)
class Launch:
    """The parts of a driver's start. `words` are arguments of spark-submit; PySpark and the JVM
    read `variables` in the environment.
    """

    java: Path
    spark_home: Path
    words: Sequence[str]
    variables: Mapping[str, str]


def launch(options: SubmitOptions, master: str = DEFAULT_MASTER) -> Launch:
    """The launch of a session with the user's options, by default on `master`. Makes missing parts:
    fetches jars, once, and builds the executors' archives.

    Raises `ConfigError` without Java or PySpark, or if this user may not write; `SparkError` if
    jars cannot be fetched.
    """
    java, spark_home = find_java(), spark_home_of_pyspark()
    jars = list(map(str, ready_jars(spark_version(spark_home))))
    master = options.master or os.environ.get("MASTER") or master
    joined: dict[str, list[str]] = {"--driver-class-path": jars}
    # In these the driver is the only executor.
    if master != "local" and not master.startswith("local["):
        joined["--jars"] = jars
    variables = {}
    if master.startswith("local"):
        python = sys.executable
        # Only this machine is to reach this driver, and Spark need not look for an address.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    elif not is_checkout():
        python = os.environ.get("PYSPARK_PYTHON", "python3")
    else:
        python = "./environment/bin/python3"
        joined["--archives"] = [f"{_printed_by('build_environment.py')}#environment"]
    python = options.settings.get("spark.pyspark.python") or python
    # If tasks run on this process's own Python, the package is there: on a zip in `sys.path`
    # each task would spend 0.3 s, since Spark lets Python forget the contents of zips at the start
    # of a task.
    if python != sys.executable and is_checkout():
        _printed_by("build_package.py")
        joined["--py-files"] = [str(_CHECKOUT / "build" / "duesweep.zip")]
    words = _words(master, joined, options)
    return Launch(java, spark_home, words, variables | {"PYSPARK_PYTHON": python})


def check_start() -> None:
    """Raise `ConfigError` if it is certain that no session starts: without PySpark or Java, or with
    another Spark. Nothing is fetched or started.
    """
    jars_for(spark_version(spark_home_of_pyspark()))
    find_java()


def is_checkout() -> bool:
    """Whether the package is in a checkout, whose scripts make what executors need."""
    return (_CHECKOUT / "spark-submit.sh").exists()


def spark_version(spark_home: Path) -> str:
    """The version of a Spark, such as `4.1.4`. Raises `ConfigError` if no Spark is there."""
    for core in spark_home.glob("jars/spark-core_*.jar"):
        return core.stem.rpartition("-")[2]
    raise ConfigError(
        f"{spark_home} is a client without a Spark of its own",
        advice="name the server with --remote, or install duesweep[spark]",
    )


def _words(
    master: str, joined: Mapping[str, Sequence[str]], options: SubmitOptions
) -> Sequence[str]:
    """`joined`: values of the options that are ours and the user's."""
    log = f'-Dlog4j2.configurationFile="{_HERE / "log4j2.properties"}"'
    words = ["--master", master, "--conf", f"spark.driver.defaultJavaOptions={log}"]
    # Of two, spark-submit takes the last one.
    words += ["--properties-file", str(_HERE / "spark-defaults.conf")]
    words += options.without("--master", *_SEPARATORS).words
    for name, separator in _SEPARATORS.items():
        values = [*joined.get(name, ()), *options.all_of(name)]
        words += [name, separator.join(values)] if values else []
    return [*words, _SHELL]


def _printed_by(script: str) -> str:
    """The output of a script of the checkout that makes something for executors. A terminal's
    Ctrl-C does not reach it: where the command stops between its steps, it completes its files.
    """
    done = subprocess.run(
        [sys.executable, str(_CHECKOUT / "scripts" / script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=0,
        check=False,
    )
    if done.returncode:
        raise ConfigError("What executors need could not be made", advice="see above")
    return done.stdout.decode().strip()


def spark_home_of_pyspark() -> Path:
    """PySpark's own Spark, whatever another one SPARK_HOME names."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigError(
            "PySpark is not installed", advice="install duesweep[spark] for large sweeps"
        )
    return Path(found.origin).parent


def main() -> int:
    """Fetch the jars, so that a first sweep, or an image, has them."""
    try:
        ready_jars(spark_version(spark_home_of_pyspark()))
    except DuesweepError as error:
        print(f"duesweep.drivers.spark_start: {error.problem.sentences}", file=sys.stderr)
        return exit_code_of(error)
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
