"""`duesweep pause`, `resume`, `paused`, `plan`, and sweeps that meet pauses."""

import json
from dataclasses import replace

import pytest

from duesweep import Duesweep
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.policy import RateLimit, RateLimits
from duesweep_testing.builders import DelayedRow
from support.commands import NO_JAVA_PACKAGE, WITHOUT_JAVA, run_on_shell
from support.diagnosis import diagnosed
from support.endpoint import ON_BOTH_SERVERS, Endpoint

LONG = ("--reason", "the bank is down")
# In the plan's order: eligible, in back-off, paused.
COUNTS = ("eligible", "back_off", "paused")


def _pause(endpoint: Endpoint, *patterns: str) -> None:
    for pattern in patterns:
        assert endpoint.run("pause", pattern, *LONG).code == 0


def test_paused_destination_gets_nothing_and_costs_no_attempt_until_it_is_resumed(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping")
    paused = endpoint.delay_many(3, ["Billing"])
    endpoint.delay_many(2, ["Shipping"])
    paused_until = endpoint.run("pause", "Bill*", "--until", "+2h", *LONG)
    assert (paused_until.code, "Bill* is paused until" in paused_until.out) == (0, True)

    swept = endpoint.document("sweep")

    assert (swept["outcome"], swept["found"], swept["dispatched"]) == ("done", 2, 2)
    [held] = swept["held_back"]
    assert (held["holder"], held["what"]) == ("paused", "Bill*")
    assert held["why"].startswith("the bank is down (")
    assert (sorted(paused), endpoint.attempts()) == (endpoint.waiting(), {})

    # Nothing else is due: a sweep that finds only paused messages is idle.
    idle = endpoint.document("sweep")
    assert (idle["outcome"], [one["what"] for one in idle["held_back"]]) == ("idle", ["Bill*"])

    resumed = endpoint.document("resume", "Bill*")
    assert (resumed["resumed"], resumed["exit_code"]) == (True, 0)
    assert endpoint.document("resume", "Bill*", code=3)["exit_code"] == 3
    assert endpoint.document("sweep")["dispatched"] == 3
    assert len(endpoint.ledger.rows("tombstones")) == 5


# SQL Server's claims are by Due.
@ON_BOTH_SERVERS
@pytest.mark.parametrize("pattern", ["Billing", "B*g"])
def test_messages_that_share_a_due_with_paused_ones_arrive(
    endpoint: Endpoint, pattern: str
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(12, ["Billing", "Shipping"])
    _pause(endpoint, pattern)

    swept = endpoint.document("sweep")

    assert (swept["outcome"], swept["dispatched"]) == ("done", 6)
    assert swept["found"] == 6 + swept["held"]
    assert (len(endpoint.waiting()), endpoint.attempts()) == (6, {})


def test_messages_that_the_plan_cannot_tell_are_paused_are_counted_as_held(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay(None)
    # Other writers may add headers behind the transport's last one, or put spaces between tokens.
    forward = {FORWARD_DESTINATION: "Shipping"}
    for headers in ({**forward, "Note": "x" * 400}, {"a": "b", **forward}):
        endpoint.load([DelayedRow(headers=json.dumps(headers), due=endpoint.due_in(-60))])
    _pause(endpoint, "Shipping", "B*g", endpoint.name)

    swept = endpoint.document("sweep")

    assert (swept["outcome"], swept["found"], swept["held"], swept["left"]) == ("done", 6, 6, 0)
    assert swept["careful_batches"] == [
        {"reason": 'There is no queue table "public"."Shipping"', "batches": 1}
    ]
    assert len(endpoint.waiting()) == 6
    listed = endpoint.document("list", "--destination", "Shipping")
    assert [one["destination"] for one in listed["messages"]] == ["Shipping"] * 2


def test_messages_with_the_paused_queues_whole_address_are_not_even_read(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3, [str(endpoint.addresses.parse("Billing"))])
    _pause(endpoint, "Billing")

    plan, swept = (endpoint.document(command) for command in ("plan", "sweep"))

    assert [(one["holder"], one["messages"]) for one in plan["held_back"]] == [("paused", 3)]
    assert (swept["outcome"], swept["found"]) == ("idle", 0)
    assert len(endpoint.waiting()) == 3


def test_pause_that_still_holds_a_resumed_destination_is_named(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up()
    whole = str(endpoint.addresses.parse("Billing"))
    _pause(endpoint, "Bill*", whole)

    ended, refused = (endpoint.run("resume", name) for name in (whole, "Billing"))

    assert (ended.code, refused.code) == (0, 3)
    assert ended.out.endswith(f"resumed {whole}.\n")
    for name, ran in ((whole, ended), ("Billing", refused)):
        assert f"the pause of Bill* still holds {name}; end it with: resume 'Bill*'" in ran.err


def test_name_that_a_shell_would_obey_is_quoted_where_it_is_to_be_pasted(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up()
    _pause(endpoint, "it's $(id)*")

    refused = endpoint.run("resume", "it's $(id)")

    assert """resume 'it'"'"'s $(id)*'""" in refused.err


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
def test_unclear_pause_is_refused(endpoint: Endpoint, arguments: list[str], sentence: str) -> None:
    endpoint.set_up()

    ran = endpoint.run("pause", *arguments)

    assert (ran.code, sentence in ran.err) == (2, True)
    assert endpoint.document("paused")["pauses"] == []


def test_doctor_warns_of_forgotten_pauses(endpoint: Endpoint) -> None:
    endpoint.set_up()
    _pause(endpoint, "Billing", "Shipping")
    table = endpoint.server.sql(endpoint.schema, "duesweep_pauses")
    forgotten = f"UPDATE {table} SET paused_at = now() - interval '2 days' WHERE pattern = $1"
    endpoint.execute(forgotten, "Shipping")

    found = diagnosed(endpoint.config_file())
    (told,) = found.all_of("store-notices")
    assert (told["severity"], "Shipping" in told["found"]) == ("warning", True)


def test_plan_tells_what_a_sweep_would_do_and_changes_nothing(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(2, ["Nowhere"])
    endpoint.run("sweep")
    endpoint.delay_many(120, ["Billing"], due_in_seconds=-7_200)
    endpoint.run("sweep")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay_many(4, ["Shipping"], due_in_seconds=-7_200)
    endpoint.delay(None, due_in_seconds=3_600)
    _pause(endpoint, "Shipping")
    before = (endpoint.waiting(), endpoint.attempts())

    planned = endpoint.document("plan")

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
    out = endpoint.run("plan", "--sql").out
    assert "9 messages due; the next sweep tries 3." in out
    assert "paused: Shipping, 4 messages: the bank is down" in out
    no_queue = 'There is no queue table "public"."Nowhere"'
    problems = {one["destination"]: one["problem"] for one in planned["destinations"]}
    assert problems == {"Billing": None, "Shipping": None, "Nowhere": no_queue}
    assert f"Would fail:\n  Nowhere, 2 messages: {no_queue}\n" in out
    assert endpoint.delayed in out
    assert f"a.source = '{endpoint.context().store.source}'" in out


def test_plan_counts_what_has_a_limit(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay_many(3, ["Billing", "Shipping"])
    limits = RateLimits((RateLimit("Bill*", 5),), endpoint.name)

    one = Duesweep(endpoint.config())
    vars(one)["context"] = replace(endpoint.context(), rate_limits=limits)

    found = one.plan()

    assert {one.destination: one.limited for one in found.destinations} == {
        "Billing": 2,
        "Shipping": 0,
    }
    assert [(one.what, one.messages) for one in found.held_back] == [("Bill*", 2)]


def test_destination_that_is_not_allowed_fails_and_others_arrive(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping", "error")
    endpoint.delay_many(2, ["Billing", "Shipping"])
    endpoint.delay(None)
    settings = {"sweep__allow_destinations": ["Bill*"], "retry__error_queue": "error"}

    swept = endpoint.document("sweep", code=3, **settings)

    assert (swept["dispatched"], swept["failed"]) == (2, 1)
    assert "does not allow the destination 'Shipping'" in swept["failures"][0]["reason"]
    endpoint.end_back_off()
    assert endpoint.run("sweep", **settings, retry__max_attempts=1).code == 3
    # The error queue need not be among them.
    assert len(endpoint.queue_rows("error")) == 1
    assert endpoint.waiting() == []


@pytest.mark.usefixtures("no_spark_session")
def test_plan_names_the_engine_that_a_sweep_will_have(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay_many(3)
    with_spark = endpoint.document("plan", sweep__spark_from=2)

    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.syspath_prepend(NO_JAVA_PACKAGE)
    without_java = endpoint.document("plan", sweep__spark_from=2)
    # In a process of its own: another test of this one may have started a session.
    file = str(endpoint.config_file(sweep__spark_from=2))
    swept = run_on_shell("sweep", "--json", "--config", file, **WITHOUT_JAVA).document
    wanted = endpoint.document("plan", sweep__engine="spark")

    assert [each["engine"] for each in (with_spark, without_java)] == ["spark", "in-process"]
    assert swept["engine"] == "in-process"
    # Such a sweep is refused.
    assert wanted["engine"] == "spark"
