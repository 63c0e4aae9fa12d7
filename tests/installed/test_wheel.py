"""The wheel, as pip installs it: without a checkout, Spark, Java and SQL Server's driver.

With the newest packages of the day, and with the oldest that it allows.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from duesweep.drivers.jars import ready_jars
from duesweep.drivers.jvm import find_java
from duesweep.drivers.spark_start import spark_home_of_pyspark, spark_version
from support.commands import ROOT, run_program
from support.endpoint import Endpoint
from support.installed import Installed, build_wheel, delay_backlog, install
from support.standalone_cluster import WORKER_PATH, standalone_cluster

pytestmark = pytest.mark.xdist_group("wheel")

# Each reads or writes the store or the ledger, or helps at the start.
_COMMANDS = (
    "config",
    "doctor --no-spark",
    "plan",
    "list",
    "list --failing",
    "errors list",
    "errors list --json",
    "paused",
    "pause Crm --reason x",
    "resume Crm",
    "audit",
    "maintain",
    "report",
    "subscriptions list Sales.OrderPlaced",
    "sweep --json",
)


@pytest.fixture(scope="session", params=["lowest", "newest"])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    resolution = {"lowest": "lowest-direct", "newest": "highest"}[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return install(folder / "venv", "--resolution", resolution, wheel)


def test_wheel_holds_all_files_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())

    packages = [ROOT / "lib" / name for name in ("duesweep", "duesweep_transport")]
    files = {path for folder in packages for path in folder.rglob("*") if path.is_file()}
    there = {str(path.relative_to(ROOT / "lib")) for path in files if path.suffix != ".pyc"}
    assert {name for name in found if ".dist-info/" not in name} == there
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)


def test_page_of_a_package_index_shows_no_broken_picture_or_link(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    head, _, page = text.partition("\n\n")

    assert "Description-Content-Type: text/markdown" in head
    assert "# duesweep" in page
    assert re.findall(r"<(?:img|picture|source)\b|\]\((?!https?:)", page) == []
    assert "The top of the page" not in page


_AUTHORS_TEST = """
import pytest
from duesweep_testing.contract import StoreContract
from duesweep_testing.contract.memory import MemoryUnderTest

class TestMine(StoreContract):
    @pytest.fixture
    def subject(self):
        return MemoryUnderTest()
"""


@pytest.mark.long
def test_authors_of_a_store_install_the_contracts_by_pip(wheel: Path, tmp_path: Path) -> None:
    contracts = build_wheel(ROOT / "lib" / "duesweep_testing", tmp_path / "dist")
    python = install(tmp_path / "venv", wheel, contracts).python
    (tmp_path / "test_mine.py").write_text(_AUTHORS_TEST)

    ran = run_program(python, "-m", "pytest", "-q", "test_mine.py", cwd=tmp_path, env={})

    assert ran.code == 0, ran.told
    assert re.search(r"^[1-9]\d+ passed", ran.out, re.MULTILINE), ran.out


def test_each_command_runs_without_spark_and_java(installed: Installed, endpoint: Endpoint) -> None:
    first = installed.run("setup --new-endpoint", endpoint)
    made = installed.run("queue create Billing", endpoint)
    endpoint.delay_many(20, ["Billing", "Nowhere"])
    endpoint.delay("Billing", due_in_seconds=3_600)
    swept = installed.run("sweep", endpoint)
    ended = {line: installed.run(line, endpoint) for line in _COMMANDS}

    assert (first.code, made.code, swept.code) == (0, 0, 3), (first, made, swept)
    assert {line: ran.told for line, ran in ended.items() if ran.code != 0} == {}
    assert [line for line, ran in ended.items() if "Traceback" in ran.told] == []
    assert "10 exhausted" in swept.out
    assert swept.err == ""
    assert len(endpoint.queue_rows("Billing")) == 10
    replayed = installed.run("errors replay --all --to Billing --reason x --yes", endpoint)
    again = installed.run("sweep", endpoint)
    assert (replayed.code, again.code) == (0, 0), (replayed, again)
    assert len(endpoint.queue_rows("Billing")) == 20


def test_large_backlog_is_delivered_without_spark_and_says_why(
    installed: Installed, endpoint: Endpoint
) -> None:
    delay_backlog(endpoint, 120_000)

    refused = installed.run("sweep --json", endpoint, sweep__engine="spark")
    swept = installed.run("sweep --json", endpoint, sweep__spark_from=100_000)

    assert (refused.code, refused.document["outcome"]) == (2, "error")
    assert "PySpark is not installed" in refused.document["error"]
    assert (swept.code, swept.document["dispatched"], swept.document["left"]) == (0, 120_000, 0)
    assert swept.document["engine"] == "in-process"
    assert "install duesweep[spark]" in str(swept.document["without_spark"])
    assert endpoint.fetch('SELECT count(*) AS n FROM "Billing"')[0].n == 120_000
    assert installed.run("audit", endpoint).code == 0


@pytest.mark.long
@pytest.mark.parametrize("installed", ["newest"], indirect=True)
def test_stock_spark_submit_sweeps_on_a_cluster(installed: Installed, endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(60)
    spark_home = spark_home_of_pyspark()
    jars = ",".join(map(str, ready_jars(spark_version(spark_home))))

    with standalone_cluster() as master:
        done = run_program(
            *(spark_home / "bin" / "spark-submit", "--master", master, "--jars", jars),
            *(ROOT / "jobs" / "run_sweep.py", "--config", endpoint.config_file(), "--json"),
            *("--set", "ledger.writer=spark"),
            env={
                "PATH": WORKER_PATH,
                "JAVA_HOME": str(find_java().parents[1]),
                "PYSPARK_PYTHON": str(installed.python),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "HOME": str(endpoint.folder),
            },
            cwd=endpoint.folder,
        )

    assert done.code == 0, done.err
    summary = json.loads(done.out.strip().splitlines()[-1])
    assert (summary["dispatched"], summary["engine"]) == (60, "spark")
    assert len(endpoint.queue_rows("Billing")) == 60


@pytest.mark.parametrize("runtime", ["17.3", "18.2", "19", "serverless-4", "serverless-6"])
def test_databricks_need_not_replace_a_package_of_its_runtime(runtime: str, wheel: Path) -> None:
    constraints = ROOT / "tests" / "fixtures" / "databricks" / f"{runtime}.txt"
    wanted = f"duesweep[otel,sqlserver] @ {wheel.as_uri()}"

    resolved = subprocess.run(
        [
            *(Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "-"),
            # To resolve takes no Python of that version; uv would fetch one.
            *("--no-python-downloads", "--python-version", "3.12", "--constraint", constraints),
        ],
        input=wanted,
        capture_output=True,
        text=True,
        check=False,
    )

    assert resolved.returncode == 0, resolved.stderr
    names = {line.partition("==")[0] for line in resolved.stdout.splitlines() if "==" in line}
    assert "deltalake" in names
    assert not names & {"pyspark", "delta-spark"}
