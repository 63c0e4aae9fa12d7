"""A ledger on a local S3, which takes conditional writes as S3 does."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import DeltaTable

from duesweep import Duesweep, load_config
from support.endpoint import Endpoint
from support.ports import free_port
from support.waiting import until

# Spark is not to be there already.
pytestmark = pytest.mark.usefixtures("no_spark_session")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a local S3 with the bucket `ledgers`. It is a process of its own: delta-rs may
    hold Python's lock while it waits for an answer.
    """
    port = free_port()
    found = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        until(lambda: _made_bucket(found))
        yield found
        server.terminate()


def _made_bucket(address: str) -> bool:
    request = urllib.request.Request(f"{address}/ledgers", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def _credentials(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "own",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_credentials")
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_commands_need_only_variables(endpoint: Endpoint, scheme: str) -> None:
    endpoint.set_up("Billing").delay_many(3, ["Billing", "Nowhere"])
    root = f"{scheme}://ledgers/{scheme}-{endpoint.schema}"
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
    lost = endpoint.run("errors", "list", **given | {"ledger__root": f"{scheme}://none/ledger"})
    assert (lost.code, "NoSuchBucket" in lost.err) == (2, True), lost.err


@pytest.mark.usefixtures("_credentials")
def test_two_writers_at_once_lose_no_commit(endpoint: Endpoint) -> None:
    root, rounds = f"s3://ledgers/two-{endpoint.schema}", 4
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
