"""Queues that a sweep cannot use: one clear sentence, the right exit code, and nothing written."""

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.core.address import quote_name
from support.endpoint import Endpoint
from support.refusals import assert_refused, run


def test_error_queue_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file(retry__error_queue="error"))

    assert_refused(capsys, endpoint, 2, "retry.error_queue is 'error'", "--config", file)


def test_error_queue_that_the_role_may_not_fill(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up("error")
    dsn = endpoint.server.role(
        "sweeper", "ALL ON ALL TABLES IN SCHEMA public", "CREATE ON SCHEMA public"
    )
    file = str(endpoint.config_file(store__dsn=dsn, retry__error_queue="error"))
    assert run("sweep", "--config", file) == 0
    capsys.readouterr()
    endpoint.execute("REVOKE INSERT ON error FROM " + _role_of(dsn))

    assert_refused(capsys, endpoint, 2, 'lacks INSERT on "public"."error"', "--config", file)


def test_queues_on_a_server_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    dsn = "postgresql://postgres@127.0.0.1:1/postgres"
    file = str(endpoint.config_file(queues__default__dsn=dsn))

    assert_refused(capsys, endpoint, 4, "127.0.0.1:1/postgres", "--config", file)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent", '"absent" does not exist'),
        ("postgres", 'no queue table "public"."Sales.Orders"'),
    ],
)
def test_queues_in_a_wrong_database(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, name: str, expected: str
) -> None:
    endpoint.set_up()
    dsn = make_conninfo(endpoint.dsn, dbname=name)
    file = str(endpoint.config_file(queues__default__dsn=dsn))

    assert_refused(capsys, endpoint, 2, expected, "--config", file)


def test_dsn_of_queues_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file(queues__default__dsn="nonsense"))

    assert_refused(capsys, endpoint, 2, "queues.default.dsn: ", "--config", file)


def _role_of(dsn: str) -> str:
    return quote_name(str(conninfo_to_dict(dsn)["user"]))
