"""`duesweep pause`, `resume`, `paused`, `plan`, and sweeps that meet what they say."""

import json
from dataclasses import replace
from typing import Any

import pytest

from duesweep.api.planning import look_ahead
from duesweep.cli.app import main
from duesweep.core.headers.json import FORWARD_DESTINATION
from duesweep.core.policy import RateLimit, RateLimits
from duesweep_testing.builders import DelayedRow
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader

Captured = pytest.CaptureFixture[str]
LONG = ("--reason", "the bank is down")
# In the plan's order: eligible, in back-off, paused.
COUNTS = ("eligible", "back_off", "paused")


def _run(endpoint: Endpoint, command: str, *arguments: str) -> int:
    return main([command, *arguments, "--config", str(endpoint.config_file())])


def _document(capsys: Captured, endpoint: Endpoint, *arguments: str, code: int = 0) -> Any:
    assert _run(endpoint, *arguments, "--json") == code
    return json.loads(capsys.readouterr().out)


def test_paused_destination_gets_nothing_and_costs_no_attempt_until_it_is_resumed(
    capsys: Captured, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Shipping")
    paused = endpoint.delay_many(3, ["Billing"])
    endpoint.delay_many(2, ["Shipping"])
    assert _run(endpoint, "pause", "Bill*", "--until", "+2h", *LONG) == 0
    assert "Bill* is paused until" in capsys.readouterr().out

    swept = _document(capsys, endpoint, "sweep")

    assert (swept["outcome"], swept["found"], swept["dispatched"]) == ("done", 2, 2)
    [held] = swept["held_back"]
    assert (held["holder"], held["what"]) == ("paused", "Bill*")
    assert held["why"].startswith("the bank is down (")
    assert (sorted(paused), endpoint.attempts()) == (endpoint.waiting(), {})

    # Nothing else is due: a sweep that finds only what is paused is idle.
    idle = _document(capsys, endpoint, "sweep")
    assert (idle["outcome"], [one["what"] for one in idle["held_back"]]) == ("idle", ["Bill*"])

    resumed = _document(capsys, endpoint, "resume", "Bill*")
    assert (resumed["resumed"], resumed["exit_code"]) == (True, 0)
    assert _document(capsys, endpoint, "resume", "Bill*", code=3)["exit_code"] == 3
    assert _document(capsys, endpoint, "sweep")["dispatched"] == 3
    assert len(ledger.rows("tombstones")) == 5


# SQL Server's claims are by Due.
@ON_BOTH_SERVERS
@pytest.mark.parametrize("pattern", ["Billing", "B*g"])
def test_messages_that_share_a_due_with_paused_ones_arrive(
    capsys: Captured, endpoint: Endpoint, pattern: str
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(12, ["Billing", "Shipping"])
    _run(endpoint, "pause", pattern, *LONG)
    capsys.readouterr()

    swept = _document(capsys, endpoint, "sweep")

    assert (swept["outcome"], swept["dispatched"]) == ("done", 6)
    assert swept["found"] == 6 + swept["held"]
    assert (len(endpoint.waiting()), endpoint.attempts()) == (6, {})


def test_messages_that_the_plan_cannot_tell_are_paused_are_counted_as_held(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay(None)
    # Another writer may add headers behind the transport's last one.
    headers = {FORWARD_DESTINATION: "Shipping", "Note": "x" * 400}
    endpoint.load([DelayedRow(headers=json.dumps(headers), due=endpoint.due_in(-60))])
    _run(endpoint, "pause", "Shipping", *LONG)
    _run(endpoint, "pause", "B*g", *LONG)
    _run(endpoint, "pause", endpoint.name, *LONG)
    capsys.readouterr()

    swept = _document(capsys, endpoint, "sweep")

    assert (swept["outcome"], swept["found"], swept["held"], swept["left"]) == ("done", 5, 5, 0)
    assert len(endpoint.waiting()) == 5


def test_messages_with_the_paused_queues_whole_address_are_not_even_read(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3, [str(endpoint.addresses.parse("Billing"))])
    _run(endpoint, "pause", "Billing", *LONG)
    capsys.readouterr()

    plan, swept = (_document(capsys, endpoint, command) for command in ("plan", "sweep"))

    assert [(one["holder"], one["messages"]) for one in plan["held_back"]] == [("paused", 3)]
    assert (swept["outcome"], swept["found"]) == ("idle", 0)
    assert len(endpoint.waiting()) == 3


def test_whole_endpoint_can_be_paused(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2)
    endpoint.load([DelayedRow(headers="{", due=endpoint.due_in(-60))])
    _run(endpoint, "pause", "*", *LONG)
    capsys.readouterr()

    assert _run(endpoint, "sweep") == 0

    out = capsys.readouterr().out
    assert "nothing is to be sent now" in out
    assert "paused: *: the bank is down" in out
    assert (len(endpoint.waiting()), endpoint.attempts()) == (3, {})


def test_pauses_are_listed_and_what_is_not_paused_cannot_be_resumed(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    assert _document(capsys, endpoint, "paused")["pauses"] == []
    _run(endpoint, "pause", "Billing", *LONG)

    assert _run(endpoint, "resume", "Bill*") == 3
    assert "Bill* is not paused; paused is: Billing" in capsys.readouterr().err
    assert _run(endpoint, "paused") == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split()[0] == "destination"
    assert row.startswith("Billing ")
    assert row.endswith("the bank is down")


def test_pause_that_still_holds_a_resumed_destination_is_named(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    whole = str(endpoint.addresses.parse("Billing"))
    _run(endpoint, "pause", "Bill*", *LONG)
    _run(endpoint, "pause", whole, *LONG)
    capsys.readouterr()

    assert [_run(endpoint, "resume", name) for name in (whole, "Billing")] == [0, 3]

    printed = capsys.readouterr()
    assert printed.out.endswith(f"the pause of {whole} has ended.\n")
    for name in (whole, "Billing"):
        assert f"the pause of Bill* still holds {name}; end it with: resume 'Bill*'" in printed.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Billing", "--reason", " "], "--reason is empty"),
        (["Billing", "--reason", "why", "--until", "-1h"], "which is over; nothing was paused"),
        (["B" * 401, "--reason", "why"], "401 characters"),
        (["Billing", "--reason", "why", "--until", "tomorrow"], "'tomorrow' is not a time"),
        (["Billing"], "--reason"),
    ],
)
def test_unclear_pause_is_refused(
    capsys: Captured, endpoint: Endpoint, arguments: list[str], sentence: str
) -> None:
    endpoint.set_up()

    assert _run(endpoint, "pause", *arguments) == 2

    assert sentence in capsys.readouterr().err
    assert _document(capsys, endpoint, "paused")["pauses"] == []


def test_doctor_tells_pauses_and_warns_of_forgotten_ones(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    _run(endpoint, "pause", "Billing", *LONG)
    _run(endpoint, "pause", "Shipping", *LONG)
    table = endpoint.server.sql(endpoint.schema, "duesweep_pauses")
    forgotten = f"UPDATE {table} SET paused_at = now() - interval '2 days' WHERE pattern = $1"
    endpoint.execute(forgotten, "Shipping")
    capsys.readouterr()

    main(["doctor", "--no-spark", "--json", "--config", str(endpoint.config_file())])

    findings = json.loads(capsys.readouterr().out)["findings"]
    told = {f["severity"]: f["found"] for f in findings if f["found"].startswith("Paused: ")}
    assert "Billing" in told["ok"]
    assert "Shipping" in told["warning"]


@pytest.mark.usefixtures("no_spark_session")
def test_plan_tells_what_a_sweep_would_do_and_changes_nothing(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(2, ["Nowhere"])
    _run(endpoint, "sweep")
    endpoint.delay_many(120, ["Billing"], due_in_seconds=-7_200)
    _run(endpoint, "sweep")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay_many(4, ["Shipping"], due_in_seconds=-7_200)
    endpoint.delay(None, due_in_seconds=3_600)
    _run(endpoint, "pause", "Shipping", *LONG)
    capsys.readouterr()
    before = (endpoint.waiting(), endpoint.attempts())

    planned = _document(capsys, endpoint, "plan")

    assert (planned["due"], planned["eligible"], planned["is_cut"]) == (9, 3, False)
    assert {
        one["destination"]: tuple(one[name] for name in COUNTS) for one in planned["destinations"]
    } == {"Billing": (3, 0, 0), "Shipping": (0, 0, 4), "Nowhere": (0, 2, 0)}
    late = {one["destination"]: one["late"] for one in planned["destinations"]}
    assert (late["Billing"]["up_to_1_h"], late["Shipping"]["up_to_1_d"]) == (3, 4)
    assert {one["holder"]: one["messages"] for one in planned["held_back"]} == {
        "paused": 4,
        "back-off": 2,
    }
    assert (planned["engine"], planned["slices"]) == ("in-process", 1)
    assert planned["seconds"] is not None
    assert (endpoint.waiting(), endpoint.attempts()) == before
    assert _run(endpoint, "plan", "--sql") == 0
    out = capsys.readouterr().out
    assert "9 messages due, 3 of them for a sweep now." in out
    assert "paused: Shipping, 4 messages: the bank is down" in out
    no_queue = 'There is no queue table "public"."Nowhere"'
    problems = {one["destination"]: one["problem"] for one in planned["destinations"]}
    assert problems == {"Billing": None, "Shipping": None, "Nowhere": no_queue}
    assert f"Would fail:\n  Nowhere, 2 messages: {no_queue}\n" in out
    assert endpoint.delayed in out


def test_plan_counts_what_has_a_limit(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay_many(3, ["Billing", "Shipping"])
    limits = RateLimits((RateLimit("Bill*", 5),), endpoint.name)

    found = look_ahead(replace(endpoint.context(), rate_limits=limits))

    assert {one.destination: one.limited for one in found.destinations} == {
        "Billing": 2,
        "Shipping": 0,
    }
    assert [(one.what, one.messages) for one in found.held] == [("Bill*", 2)]


def test_sweep_of_so_many_messages_takes_the_oldest_and_is_stopped(
    capsys: Captured, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    oldest = endpoint.delay_many(4, due_in_seconds=-7_200)

    swept = _document(capsys, endpoint, "sweep", "--max-messages", "4")

    assert (swept["outcome"], swept["exit_code"]) == ("stopped", 0)
    assert (swept["found"], swept["dispatched"], swept["left"]) == (7, 4, 3)
    assert {row.message_key for row in ledger.rows("tombstones")} == set(oldest)
    rest = _document(capsys, endpoint, "sweep", "--max-messages", "4")
    assert (rest["outcome"], rest["dispatched"], rest["left"]) == ("done", 3, 0)


def test_destination_that_is_not_allowed_fails_and_others_arrive(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", "Shipping", "error")
    endpoint.delay_many(2, ["Billing", "Shipping"])
    endpoint.delay(None)
    settings = {"sweep__allow_destinations": ["Bill*"], "retry__error_queue": "error"}

    assert main(["sweep", "--json", "--config", str(endpoint.config_file(**settings))]) == 3

    swept = json.loads(capsys.readouterr().out)
    assert (swept["dispatched"], swept["failed"]) == (2, 1)
    assert "does not allow the destination 'Shipping'" in swept["failures"][0]["reason"]
    endpoint.end_back_off()
    last = endpoint.config_file(**settings, retry__max_attempts=1)
    assert main(["sweep", "--config", str(last)]) == 3
    # The error queue need not be among them.
    assert len(endpoint.queue_rows("error")) == 1
    assert endpoint.waiting() == []
