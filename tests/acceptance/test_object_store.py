"""A ledger on a local S3 or ADLS, which take conditional writes as the real ones do.

ADLS is tried where npm's `azurite` is in the PATH. For GCS no local service was found: delta-rs
puts objects by GCS's XML interface, which fake-gcs-server 1.56 refuses.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL
from typing import NamedTuple
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType

from duesweep import Duesweep, load_config
from duesweep.ledger.delta_rs import _storage
from support.azurite import ACCOUNT, azurite
from support.endpoint import Endpoint
from support.ports import free_port
from support.waiting import until

# Spark is not to be there already.
pytestmark = pytest.mark.usefixtures("no_spark_session")


class Place(NamedTuple):
    """An object store: a root below its bucket or container `ledgers`, one of a missing bucket,
    the service's word for that, and the variables that are all that is needed.
    """

    root: str
    lost: str
    word: str
    variables: Mapping[str, str]


@pytest.fixture(scope="module", params=["s3", "s3a", pytest.param("abfss", marks=pytest.mark.long)])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A local service, a process of its own: delta-rs may hold Python's lock while it waits for an
    answer.
    """
    if request.param == "abfss":
        host = f"@{ACCOUNT}.dfs.core.windows.net/"
        with azurite("ledgers", tmp_path_factory.mktemp("objects")) as variables:
            yield Place(
                f"abfss://ledgers{host}", f"abfss://none{host}a", "ContainerNotFound", variables
            )
        return
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=DEVNULL, stderr=DEVNULL) as server:
        until(lambda: _made(Request(f"{address}/ledgers", method="PUT")))
        yield _s3(address, request.param)
        server.terminate()


def _made(request: Request) -> bool:
    try:
        with urlopen(request, timeout=5) as answer:
            return bool(answer.status in {200, 201})
    except OSError:
        return False


def _s3(address: str, scheme: str) -> Place:
    variables = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "own",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    return Place(f"{scheme}://ledgers/", f"{scheme}://none/ledger", "NoSuchBucket", variables)


@pytest.fixture
def _credentials(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_credentials")
def test_commands_need_only_variables(endpoint: Endpoint, place: Place) -> None:
    endpoint.set_up("Billing").delay_many(3, ["Billing", "Nowhere"])
    root = f"{place.root}own-{endpoint.schema}-{uuid4().hex}"
    given = {"ledger__root": root, "retry__max_attempts": 1}

    swept = endpoint.document("sweep", code=3, **given)

    assert (swept["dispatched"], swept["exhausted"], swept["engine"]) == (2, 1, "in-process")
    (group,) = endpoint.document("errors", "list", **given)["groups"]
    assert (group["destination"], group["open"]) == ("Nowhere", 1)
    assert endpoint.run("errors", "discard", "--group", group["group"], "--yes", **given).code == 0
    for command in (["audit"], ["maintain"], ["sweep"]):
        assert endpoint.run(*command, **given).code == 0
    (page,) = endpoint.document("report", **given)["sources"]
    assert page["history"]["dispatched"] == 2
    other = endpoint.run("errors", "list", **given | {"ledger__root": f"{root}-moved"})
    assert (other.code, f"which was at {root}, but no ledger is at" in other.err) == (2, True)
    lost = endpoint.run("errors", "list", **given | {"ledger__root": place.lost})
    assert (lost.code, place.word in lost.err) == (2, True), lost.err


@pytest.mark.usefixtures("_credentials")
def test_doctor_tries_the_ledger_and_leaves_nothing_there(endpoint: Endpoint, place: Place) -> None:
    endpoint.set_up("Billing").delay()
    root = f"{place.root}own-{endpoint.schema}-{uuid4().hex}"
    assert endpoint.run("sweep", ledger__root=root).code == 0

    found = endpoint.document("doctor", "--no-spark", ledger__root=root)

    assert found["worst"] == "ok", found
    tables = _storage(root, None).get_file_info(FileSelector("", recursive=True))
    assert not any("duesweep_trial" in each.path for each in tables if each.type is FileType.File)


# A scheme is the same service by another name.
@pytest.mark.parametrize(
    "place", ["s3", pytest.param("abfss", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.usefixtures("_credentials")
def test_two_writers_at_once_lose_no_commit(endpoint: Endpoint, place: Place) -> None:
    root, rounds = f"{place.root}two-{endpoint.schema}-{uuid4().hex}", 4
    endpoints = [endpoint.named(name) for name in ("Sales", "Shipping")]

    def sweep(one: Endpoint) -> list[int | None]:
        opened = Duesweep(load_config(one.folder / f"{one.name}.toml"))
        codes = []
        for _ in range(rounds):
            one.delay_many(2, ["Billing", "Nowhere"])
            codes.append(opened.sweep().exit_code)
        return codes

    for each in endpoints:
        each.set_up("Billing")
        file = each.config_file(ledger__root=root, retry__max_attempts=1)
        file.rename(each.folder / f"{each.name}.toml")
    with ThreadPoolExecutor(len(endpoints)) as pool:
        codes = list(pool.map(sweep, endpoints))

    assert codes == [[3] * rounds] * len(endpoints)
    for table, rows in {"tombstones": 2, "errors": 1, "sweeps": 1}.items():
        found = DeltaTable(f"{root}/{table}").to_pyarrow_table(columns=["sweep_id"])
        assert found.num_rows == rows * rounds * len(endpoints), table
