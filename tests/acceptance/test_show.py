"""`duesweep show` on PostgreSQL: what it prints, and with which exit code."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from duesweep.cli.app import main
from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint
from support.sweeps import run_sweep

Captured = pytest.CaptureFixture[str]

UNKNOWN = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"
NASTY = b"\x1b]0;owned\x07\x1b[2J\xff\xfe\x00 \xe2\x80\xae and a text" + 100 * b"."


def _show(endpoint: Endpoint, *arguments: str, **settings: object) -> int:
    return main(["show", "--config", str(endpoint.config_file(**settings)), *arguments])


def _document(capsys: Captured, endpoint: Endpoint, *arguments: str) -> dict[str, Any]:
    assert _show(endpoint, "--json", *arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def _sweep(endpoint: Endpoint, **settings: object) -> None:
    run_sweep(endpoint, **settings)


def test_message_is_shown_whole(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up()
    row = delayed_row(due=endpoint.due_in(-60), body=b'{"a":[1]}', more={"Null": None})
    (stored,) = endpoint.load([row])

    assert _show(endpoint, stored.key) == 0

    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[:2] == ["message", f"  key          {stored.key}"]
    assert "  destination  Billing" in lines
    assert any(line.startswith("  due          2") and "1 min" in line for line in lines)
    assert "  failures     0" in lines
    assert "  body         9 bytes" in lines
    assert any(line.split() == ["Null", "(null)"] for line in lines)
    assert lines.index("body (9 bytes, as json)") + 5 == lines.index("}")
    assert lines[-1] == "history in the ledger: none"


def test_headers_are_aligned(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay()

    _show(endpoint, key)

    lines = capsys.readouterr().out.splitlines()
    headers = lines[lines.index("headers") + 1 :]
    starts = {
        line.index(value)
        for line, value in ((line, line.split()[1]) for line in headers[: headers.index("")])
    }
    assert len(starts) == 1


@pytest.mark.parametrize("form", [(), ("--as", "text"), ("--as", "json"), ("--as", "xml")])
def test_nothing_that_a_terminal_obeys_is_printed(
    capsys: Captured, endpoint: Endpoint, form: tuple[str, ...]
) -> None:
    endpoint.set_up()
    row = delayed_row(
        "Bill\x1bing", due=endpoint.due_in(-60), body=NASTY, more={"Na\x07me": "va\u202elue\n"}
    )
    (stored,) = endpoint.load([row])

    assert _show(endpoint, stored.key, *form) == 0

    out, _ = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(out)
    assert r"Na\x07me" in out
    assert r"va\u202elue\n" in out
    assert r"\x1b]0;owned\x07\x1b[2J\xff\xfe\x00 \u202e" in out


def test_large_body_is_cut_and_its_size_is_told(
    capsys: Captured, endpoint: Endpoint, tmp_path: Path
) -> None:
    body = b"x" * 10_000_000
    key = endpoint.set_up().delay(body=body)
    file = tmp_path / "body"

    assert _show(endpoint, key, "--body-to", str(file)) == 0

    out, _ = capsys.readouterr()
    assert "body (10.0 MB, as text, the beginning; --body-to FILE writes all of it)" in out
    assert len(out) < 30_000
    assert file.read_bytes() == body
    assert file.stat().st_mode & 0o077 == 0


def test_body_goes_to_a_file_byte_for_byte_and_never_over_another(
    capsys: Captured, endpoint: Endpoint, tmp_path: Path
) -> None:
    key = endpoint.set_up().delay(body=NASTY)
    file = tmp_path / "body"

    assert _show(endpoint, key, "--body-to", str(file)) == 0
    assert file.read_bytes() == NASTY
    capsys.readouterr()

    assert _show(endpoint, key, "--body-to", str(file)) == 2
    assert "name a new file" in capsys.readouterr().err


def test_document_has_headers_and_body_as_they_are(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay(None, body=NASTY)

    document = _document(capsys, endpoint, key)

    (message,) = document["messages"]
    assert base64.b64decode(message["body"]) == NASTY
    assert message["headers"]["NServiceBus.Version"] == "10.2.8"
    assert json.loads(message["headers_text"]) == message["headers"]
    assert (message["key"], message["destination"]) == (key, "Sales.Orders")
    assert (message["headers_error"], document["history"]) == (None, [])


def test_poison_is_shown_with_the_reason(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay(headers="{no JSON\x1b")

    assert _show(endpoint, key) == 0

    out, _ = capsys.readouterr()
    assert "cannot be read: The headers are not JSON" in out
    assert r"{no JSON\x1b" in out


def test_message_is_found_by_its_id(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(3)
    (key,) = endpoint.delay_many(1)
    message_id = _document(capsys, endpoint, key)["messages"][0]["message_id"]

    (message,) = _document(capsys, endpoint, "--message-id", message_id)["messages"]

    assert message["key"] == key
    assert message["body"] is not None


def test_failures_and_their_history_are_shown(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay("Nowhere")
    _sweep(endpoint)

    document = _document(capsys, endpoint, key)
    assert _show(endpoint, key) == 0

    (message,) = document["messages"]
    assert (message["attempts"], "Nowhere" in message["error"]) == (1, True)
    assert [(e["table"], e["what"]) for e in document["history"]] == [("retries", "failed")]
    out, _ = capsys.readouterr()
    assert "  failures     1; in back-off until " in out
    assert 'last error   There is no queue table "public"."Nowhere"' in out


def test_message_that_has_left_is_known_to_the_ledger(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up("Billing").delay()
    message_id = _document(capsys, endpoint, key)["messages"][0]["message_id"]
    _sweep(endpoint)

    document = _document(capsys, endpoint, key)
    assert _document(capsys, endpoint, "--message-id", message_id)["history"] == document["history"]
    assert _show(endpoint, key) == 0

    assert document["messages"] == []
    (event,) = document["history"]
    assert (event["table"], event["what"]) == ("tombstones", "dispatched")
    out, err = capsys.readouterr()
    assert "dispatched" in out
    assert f"has no message with key {key}; the ledger has its history" in err


def test_exhausted_message_is_known_to_the_ledger(capsys: Captured, endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay("Nowhere")
    _sweep(endpoint, retry__max_attempts=1)

    document = _document(capsys, endpoint, key)

    assert {(e["table"], e["what"]) for e in document["history"]} >= {("errors", "exhausted")}
    assert all("Nowhere" in e["detail"] for e in document["history"] if e["table"] == "errors")


@pytest.mark.parametrize("name", [UNKNOWN, "no UUID", "\x1b[2J"])
def test_message_that_nobody_knows_is_told_so(
    capsys: Captured, endpoint: Endpoint, name: str
) -> None:
    endpoint.set_up().delay()

    assert _show(endpoint, name) == 3

    out, err = capsys.readouterr()
    assert out == ""
    assert "has no message with key " in err
    assert "\x1b" not in err


@pytest.mark.parametrize("arguments", [(), (UNKNOWN, "--message-id", "1")])
def test_key_or_message_id_has_to_be_given(
    capsys: Captured, endpoint: Endpoint, arguments: tuple[str, ...]
) -> None:
    assert _show(endpoint, *arguments) == 2

    assert "give either KEY or --message-id ID" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark_session")
def test_ledger_in_a_catalog_is_left_out_without_spark(
    capsys: Captured, endpoint: Endpoint
) -> None:
    key = endpoint.set_up().delay()

    assert _show(endpoint, key, ledger__root="main.duesweep") == 0

    out, err = capsys.readouterr()
    assert key in out
    assert "Only Spark can read the ledger at main.duesweep" in err


def test_ledger_that_cannot_be_read_ends_with_4_after_the_message(
    capsys: Captured, endpoint: Endpoint
) -> None:
    key = endpoint.set_up("Billing").delay(due_in_seconds=3_600)
    endpoint.delay()
    _sweep(endpoint)
    for log in (endpoint.folder / "ledger" / "tombstones" / "_delta_log").glob("*.json"):
        log.write_text("broken")

    assert _show(endpoint, key) == 4

    out, err = capsys.readouterr()
    assert key in out
    assert "the history is not shown: " in err
