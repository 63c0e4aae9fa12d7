"""The statements that `setup --print-sql` prints without a server."""

import pytest

from duesweep.cli.app import main

_DSN = "Server=db.example;Database=n]sb;Uid=sweeper;Pwd=s3cret"
_JOURNAL = ("journal", "attempts", "sweeps", "bindings", "changes", "pauses", "limits")


@pytest.mark.parametrize(
    ("kind", "delayed", "own"),
    [
        ("sqlserver", "Sales.Orders.Delayed", {"[dbo].[Sales.Orders]"}),
        ("msmq", "Sales.Orders.delayed", set()),
    ],
)
def test_grants_on_sql_server(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    delayed: str,
    own: set[str],
) -> None:
    monkeypatch.setenv("DUESWEEP_STORE__DSN", _DSN)
    settings = {
        "store.kind": kind,
        "store.endpoint": "Sales.Orders",
        "retry.error_queue": "error@[dbo]@[other]",
        "ledger.root": "/ledger",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    assert main(["setup", "--print-sql", "--grant-to", "swe]eper", *given]) == 0

    batches = capsys.readouterr().out.split("\nGO\n")
    of_nsb, of_other = batches[-2:]
    tables = {f"[dbo].[duesweep_{name}]" for name in _JOURNAL}
    assert set(of_nsb.splitlines()) == {
        "USE [n]]sb];",
        f"GRANT SELECT, UPDATE, DELETE ON [dbo].[{delayed}] TO [swe]]eper];",
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO [swe]]eper];" for table in tables),
        *(f"GRANT SELECT, INSERT ON {table} TO [swe]]eper];" for table in own),
    }
    assert of_other.splitlines()[:2] == [
        "USE [other];",
        "GRANT SELECT, INSERT ON [dbo].[error] TO [swe]]eper];",
    ]
    assert all(line.startswith("--") for line in of_other.splitlines()[2:])


def test_grants_on_rabbitmq_are_left_to_its_own_tool(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        "store.kind": "postgresql",
        "store.dsn": "postgresql://db.example/nsb",
        "store.endpoint": "Sales.Orders",
        "queues.default.kind": "rabbitmq",
        "queues.default.url": "amqp://broker.example",
        "ledger.root": "/ledger",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    assert main(["setup", "--print-sql", "--grant-to", "sweeper", *given]) == 0

    out = capsys.readouterr().out
    assert 'DELETE ON "public"."Sales.Orders.Delayed" TO "sweeper";' in out
    assert "rabbitmqctl set_permissions" in out
