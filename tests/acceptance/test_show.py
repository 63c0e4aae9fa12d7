"""`duesweep show`: hostile and large bodies, and what the ledger knows; see also tests/golden."""

import base64
import json
from pathlib import Path

import pytest

from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint
from support.sweeps import run_sweep

UNKNOWN = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"
NASTY = b"\x1b]0;owned\x07\x1b[2J\xff\xfe\x00 \xe2\x80\xae and a text" + 100 * b"."


def _id_of(endpoint: Endpoint, key: str) -> str:
    return str(endpoint.document("show", key)["messages"][0]["message_id"])


@pytest.mark.parametrize("form", [(), ("--as", "text"), ("--as", "json"), ("--as", "xml")])
def test_nothing_that_a_terminal_obeys_is_printed(
    endpoint: Endpoint, form: tuple[str, ...]
) -> None:
    endpoint.set_up()
    row = delayed_row(
        "Bill\x1bing", due=endpoint.due_in(-60), body=NASTY, more={"Na\x07me": "va\u202elue\n"}
    )
    (stored,) = endpoint.load([row])

    out = endpoint.run("show", stored.key, *form).out

    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(out)
    assert r"Na\x07me" in out
    assert r"va\u202elue\n" in out
    assert r"\x1b]0;owned\x07\x1b[2J\xff\xfe\x00 \u202e" in out


def test_large_body_is_cut_and_a_file_gets_all_of_it(endpoint: Endpoint, tmp_path: Path) -> None:
    body = b"x" * 10_000_000
    key = endpoint.set_up().delay(body=body)
    file = tmp_path / "body"

    ran = endpoint.run("show", key, "--body-to", str(file))

    assert "body (10.0 MB, as text, the beginning; --body-to FILE writes all of it)" in ran.out
    assert (ran.code, len(ran.out) < 30_000) == (0, True)
    assert file.read_bytes() == body
    assert file.stat().st_mode & 0o077 == 0


def test_body_goes_to_a_file_byte_for_byte_and_never_over_another(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    key = endpoint.set_up().delay(body=NASTY)
    show = ("show", key, "--body-to", str(tmp_path / "body"))

    assert endpoint.run(*show).code == 0
    again = endpoint.run(*show)

    assert (again.code, "name a new file" in again.err) == (2, True)
    assert (tmp_path / "body").read_bytes() == NASTY


def test_document_has_headers_and_body_as_they_are(endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay(None, body=NASTY)

    document = endpoint.document("show", key)

    (message,) = document["messages"]
    assert base64.b64decode(message["body"]) == NASTY
    assert message["headers"]["NServiceBus.Version"] == "10.2.8"
    assert json.loads(message["headers_text"]) == message["headers"]
    assert (message["key"], message["destination"]) == (key, "Sales.Orders")
    assert (message["headers_error"], document["history"]) == (None, [])


def test_message_that_has_left_is_known_to_the_ledger(endpoint: Endpoint) -> None:
    key = endpoint.set_up("Billing").delay()
    message_id = _id_of(endpoint, key)
    run_sweep(endpoint)

    document = endpoint.document("show", key)
    ran = endpoint.run("show", key)

    assert endpoint.document("show", "--message-id", message_id)["history"] == document["history"]
    assert document["messages"] == []
    (event,) = document["history"]
    assert (event["table"], event["what"]) == ("tombstones", "dispatched")
    assert (ran.code, "dispatched" in ran.out) == (0, True)
    assert f"has no message with key {key}; the ledger has its history" in ran.err


def test_exhausted_message_is_known_to_the_ledger(endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay("Nowhere")
    run_sweep(endpoint, retry__max_attempts=1)

    document = endpoint.document("show", key)

    assert {(e["table"], e["what"]) for e in document["history"]} >= {("errors", "exhausted")}
    assert all("Nowhere" in e["detail"] for e in document["history"] if e["table"] == "errors")


@pytest.mark.parametrize("name", [UNKNOWN, "no UUID", "\x1b[2J"])
def test_message_that_nobody_knows_is_told_so(endpoint: Endpoint, name: str) -> None:
    endpoint.set_up().delay()

    ran = endpoint.run("show", name)

    assert (ran.code, ran.out) == (3, "")
    assert "has no message with key " in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("arguments", [(), (UNKNOWN, "--message-id", "1")])
def test_key_or_message_id_has_to_be_given(endpoint: Endpoint, arguments: tuple[str, ...]) -> None:
    ran = endpoint.run("show", *arguments)

    assert (ran.code, "give either KEY or --message-id ID" in ran.err) == (2, True)


def test_ledger_in_a_catalog_is_left_out_without_spark(endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay()

    ran = endpoint.run("show", key, ledger__root="main.duesweep")

    assert (ran.code, key in ran.out) == (0, True)
    assert "Only Spark can read the ledger at main.duesweep" in ran.err


def test_ledger_that_cannot_be_read_ends_with_4_after_the_message(endpoint: Endpoint) -> None:
    key = endpoint.set_up("Billing").delay(due_in_seconds=3_600)
    endpoint.delay()
    run_sweep(endpoint)
    for log in (endpoint.folder / "ledger" / "tombstones" / "_delta_log").glob("*.json"):
        log.write_text("broken")

    ran = endpoint.run("show", key)

    assert (ran.code, key in ran.out) == (4, True)
    assert "the history is not shown: " in ran.err
