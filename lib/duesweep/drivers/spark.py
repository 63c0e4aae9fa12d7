"""Spark's session, and its errors in words.

Its errors are PySpark's own, py4j's, and errors of a call to a JVM that is gone. Errors of the JVM
without a class in PySpark come as py4j's: Delta's exceptions, for example, and a failed
`foreachPartition`.
"""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from duesweep.core.causes import Cause
from duesweep.core.errors import ConfigError, SparkError, lacks_descriptors, raise_interruption
from duesweep.core.submit import SubmitOptions
from duesweep.drivers.jvm import start_jvm
from duesweep.drivers.spark_causes import cause_of
from duesweep.drivers.spark_start import DEFAULT_MASTER, Launch
from duesweep.drivers.spark_start import launch as launch_of

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)

# PySpark reads them too: one of these is set if Spark is reached over Spark Connect.
_CONNECT_VARIABLES = {"SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"}
_CONNECT_PORT, _REACH_SECONDS = 15_002, 10.0
_SPECULATION = "spark.speculation"
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
# Over Spark Connect these are its server's.
_OF_THE_SERVER = {_EXTENSIONS, _CATALOG}
# The settings of spark-defaults.conf that every session needs, where the user gives no others.
SETTINGS = {
    "spark.app.name": "duesweep",
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Other readers cannot read INT96 before 1677 and after 2262. The ledger's writer sets this too.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Arrow rows stay Arrow until an executor writes them. As a local relation they would become
    # part of the query's plan: 200,000 rows took 12 s instead of 2 s.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
# Names of errors only: "Concurrent" alone would match a ConcurrentHashMap in any stack.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|DELTA_PROTOCOL_CHANGED|DELTA_METADATA_CHANGED"
    r"|Concurrent\w*Exception|(Metadata|Protocol)ChangedException"
)


# Of two threads that need a session, one starts the JVM.
_starting = threading.Lock()
# The variables of the JVM that this process has started: after a session that was stopped, the next
# one uses the same JVM.
_launched: dict[str, str] = {}


def spark_session(
    options: SubmitOptions | None = None, master: str = DEFAULT_MASTER
) -> SparkSession:
    """The session that is there, else a new one: with these options of spark-submit, by default on
    `master`; without options, that which spark-submit or Databricks prepared.

    Failed tasks are retried: a task whose JDBC read is cut runs again, and the other slices
    continue. Raises `SparkError` if it does not start.
    """
    with _starting, map_spark_errors("Spark did not start"):
        return SparkSession.getActiveSession() or _open(options, master)


def _open(options: SubmitOptions | None, master: str) -> SparkSession:
    # py4j logs a lost JVM with a whole stack trace. The caller reports it in one sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_from_py4j)
    # PySpark has no other way to ask whether there is a JVM. Over Spark Connect, none is started.
    is_started = SparkContext._gateway is not None  # noqa: SLF001
    is_remote = options is not None and options.remote is not None
    is_started = is_started or is_remote or not _CONNECT_VARIABLES.isdisjoint(os.environ)
    launch = None if options is None or is_started else launch_of(options, master)
    if launch is not None:
        _launched.update(launch.variables)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with _environment(_launched):
            if not is_started:
                _start_driver(launch)
            session = _session(options)
    except OSError as error:
        # PySpark listens on `localhost`, which a bare system may not know.
        if isinstance(error, ConnectionError) or lacks_descriptors(error):
            raise
        raise SparkError(f"Spark did not start: {error}", transient=False) from error
    # PySpark's own handler of SIGINT calls the JVM while another call to the JVM may be running.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return session


def _session(options: SubmitOptions | None) -> SparkSession:
    """A session of the JVM that is there, or over Spark Connect, with our settings where the user
    gave none.
    """
    builder: SparkSession.Builder = SparkSession.builder
    if SparkContext._gateway is not None:  # noqa: SLF001
        given = SparkConf()
        _refuse_values(given)
        ours = {name: value for name, value in SETTINGS.items() if given.get(name, None) is None}
        return builder.config(map={**ours}).getOrCreate()
    # The server has its own extensions and catalog.
    ours = {name: value for name, value in SETTINGS.items() if name not in _OF_THE_SERVER}
    given_settings = {} if options is None else options.settings
    builder = builder.config(map={**ours, **given_settings})
    remote = None if options is None else options.remote
    _reach(remote or os.environ.get("SPARK_REMOTE", ""))
    return (builder if remote is None else builder.remote(remote)).getOrCreate()


def _refuse_values(settings: SparkConf) -> None:
    """Raise the JVM's error for a value that it refuses. PySpark never would: it asks the session
    how to show the error, and gets the same error again, without an end.
    """
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    checked = jvm.org.apache.spark.sql.internal.SQLConf()
    for name, value in settings.getAll():
        if name.startswith("spark.sql."):
            checked.setConfString(name, value)


def _reach(remote: str) -> None:
    """Raise `SparkError` if no server answers there: PySpark itself would try for ten minutes."""
    try:
        server = urlsplit(remote)
        place = (server.hostname or "", server.port or _CONNECT_PORT)
    except ValueError as error:
        # Not quoted: it may hold a token.
        raise ConfigError(
            "Spark did not start: the address of the Spark Connect server is none",
            advice="give sc://HOST:PORT with --remote or SPARK_REMOTE",
        ) from error
    if server.scheme != "sc":
        return
    try:
        socket.create_connection(place, _REACH_SECONDS).close()
    except OSError as error:
        if lacks_descriptors(error):
            raise
        raise SparkError(
            f"Spark did not start: no server answers at {place[0]}: {error}",
            transient=True,
            advice="check --remote or SPARK_REMOTE, and that the Spark Connect server runs",
        ) from error


def with_ours(conf: SparkConf) -> SparkConf:
    """The settings, with ours if none is given. Extensions are a list, to which ours is added."""
    for name, value in SETTINGS.items():
        given = conf.get(name, None)
        if name == _EXTENSIONS and given is not None and value not in given.split(","):
            conf.set(name, f"{given},{value}")
        conf.setIfMissing(name, value)
    return conf


def refuse_settings(spark: SparkSession) -> None:
    """Raise `ConfigError` for a setting of the session that would break a promise."""
    try:
        speculates = spark.sparkContext.getConf().get(_SPECULATION, "false")
    except PySparkException:
        # Spark Connect has no context.
        speculates = str(spark.conf.get(_SPECULATION, "false"))
    if str(speculates).lower() == "true":
        raise ConfigError(
            f"{_SPECULATION} is on: Spark would start second copies of slow tasks, and a copy that "
            "it kills may leave messages delivered twice",
            advice=f"set {_SPECULATION}=false, with --conf or where the session is prepared",
        )


def refuse_stopped(spark: SparkSession) -> None:
    """Raise `SparkError` for a session that was stopped: calls would end in errors of PySpark's own
    code.
    """
    try:
        is_stopped: bool = spark.sparkContext._jsc is None  # noqa: SLF001 - PySpark has no other way
    except PySparkException:
        # Spark Connect has no context.
        is_stopped = getattr(spark, "is_stopped", False)
    if is_stopped:
        raise SparkError(
            "The Spark session was stopped",
            transient=False,
            advice="give a session that runs, or none, and duesweep finds or starts one",
        )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The environment with these variables: PySpark reads them when it starts the JVM. Programs
    that this process starts later are to prepare a session of their own.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _start_driver(launch: Launch | None) -> None:
    """Start the JVM, or connect to the JVM of spark-submit."""
    if launch is None:
        gateway = launch_gateway(None, {"process_group": 0})  # type: ignore[no-untyped-call]
    else:
        jvm = start_jvm(launch.java, launch.spark_home, launch.words, launch.variables)
        reached = {"PYSPARK_GATEWAY_PORT": str(jvm.port), "PYSPARK_GATEWAY_SECRET": jvm.secret}
        with _environment(reached):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        # As PySpark does: the JVM ends with the pipe to it.
        gateway.proc = jvm.process
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    # Only now it has the settings that the user gave to spark-submit.
    SparkContext(conf=with_ours(SparkConf()), gateway=gateway)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Drops py4j's records: py4j logs every call that Ctrl-C interrupts to the root logger."""
    return record.module != "java_gateway"


def cause(error: BaseException) -> Cause:
    """What happened, whether it may pass, and what to do."""
    if _is_jvm_gone(error):
        return Cause("Spark's JVM has ended (killed, or out of memory)", may_pass=True)
    # Errors of the language have no causes, but the stack of the parser.
    has_causes = not isinstance(error, AnalysisException)
    return cause_of(_text(error) or type(error).__name__, has_causes=has_causes)


def is_conflict(error: BaseException) -> bool:
    """Whether another process committed to the Delta table at the same time."""
    return bool(_CONFLICT.search(_text(error)))


def _is_jvm_gone(error: BaseException) -> bool:
    """Whether a call found no JVM, or lost its connection to it."""
    if isinstance(error, Py4JError):
        # Every error that the JVM itself raises comes with its Java exception, or py4j's trace.
        return not isinstance(error, Py4JJavaError) and "Trace:" not in _text(error)
    return isinstance(error, ConnectionError)


@contextmanager
def map_spark_errors(what: str = "Spark failed") -> Iterator[None]:
    """Turn Spark's errors into `SparkError`; `what` happened."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise_interruption(error)
        why = cause(error)
        # An unknown fault may last.
        goes_on = "; the journal has its results, and the next sweep continues"
        end = goes_on if why.may_pass else ""
        raise SparkError(
            f"{what}: {why.text}{end}", transient=bool(why.may_pass), advice=why.advice
        ) from error


def _text(error: BaseException) -> str:
    """The error's text with all causes. Some of PySpark's errors keep the JVM's stack apart."""
    try:
        notes = getattr(error, "__notes__", ())
        return "\n".join([str(error), str(getattr(error, "_stackTrace", None) or ""), *notes])
    except SPARK_ERRORS:
        # py4j asks the JVM for the text only now, and the JVM may be gone.
        return type(error).__name__
