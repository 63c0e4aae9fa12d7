"""How a command tells that it failed: a sentence, an exit code, and with --json a document."""

import json
import os
import signal
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duesweep.cli import app
from duesweep.core.errors import ConfigError, NothingDueError, SparkError, StoreError
from duesweep.operations.look import NextDue
from duesweep.operations.run import failed_run
from duesweep.report.views.runs import document, idle_sentence
from support.commands import Ran, run
from support.reports import FAILED, MOVED, NOTHING, UNREACHED, UNWRITTEN

Meet = Callable[[Callable[[], object]], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Lets a function be called while a command reads its configuration."""
    monkeypatch.chdir(tmp_path)
    Path("duesweep.toml").touch()

    def met(what: Callable[[], object]) -> None:
        monkeypatch.setattr(tomllib, "loads", lambda _: what())

    return met


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (ConfigError("wrong"), 2, "wrong"),
        (StoreError("away", transient=True), 4, "away"),
        (SparkError("ended", transient=True), 4, "ended"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_command_that_fails_prints_one_document_and_one_sentence(
    raised: BaseException, code: int, says: str, meet: Meet
) -> None:
    meet(_raising(raised))

    ran = run("sweep", "--json")

    (said,), (told,) = ran.err.splitlines(), map(json.loads, ran.out.splitlines())
    assert (ran.code, told["exit_code"]) == (code, code)
    assert says in said
    assert says in told["error"]
    assert (told["outcome"], told["dispatched"]) == ("error", None)
    assert told.keys() == document(NOTHING).keys()


def test_option_that_is_not_known_is_a_document_too() -> None:
    ran = run("sweep", "--json", "--fast")

    assert (ran.code, ran.out.count("\n")) == (2, 1)
    assert "--fast" in json.loads(ran.out)["error"]


def test_unforeseen_error_is_a_document_and_keeps_its_stack(capsys: Capture, meet: Meet) -> None:
    meet(_raising(KeyError("x")))

    with pytest.raises(KeyError):
        app.main(["sweep", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert (told["exit_code"], told["error"]) == (1, "KeyError: 'x'")


def test_without_json_nothing_is_on_stdout(meet: Meet) -> None:
    meet(_raising(ConfigError("wrong")))

    assert run("sweep") == Ran(2, "", "duesweep: wrong\n")


@pytest.mark.parametrize("arguments", [[], ["queue"], ["rabbitmq"]])
def test_without_a_command_the_help_is_printed_as_it_is(arguments: list[str]) -> None:
    ran = run(*arguments)

    usage = ran.err.splitlines()[0].split("[")[0]
    assert (ran.code, ran.out, usage) == (2, "", " ".join(["Usage: duesweep", *arguments, ""]))
    assert "see --help" not in ran.err


def test_sigterm_is_a_sentence_and_4(meet: Meet) -> None:
    def end() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    before = signal.getsignal(signal.SIGTERM)
    meet(end)

    # A sweep would finish its batches first.
    ran = run("list", "--json")

    assert (ran.code, ran.document["exit_code"]) == (4, 4)
    assert ran.err == "duesweep: terminated; nothing was changed\n"
    assert signal.getsignal(signal.SIGTERM) == before


_MISSING = ("--json", "--config", "missing.toml")


@pytest.mark.parametrize(
    "command",
    [
        *(("plan",), ("list",), ("paused",), ("doctor",), ("setup",), ("errors", "list")),
        *(("show", "key"), ("cancel", "key"), ("restore", "key"), ("resume", "Billing")),
        *(("reschedule", "key", "--by", "+1h"), ("pause", "Billing", "--reason", "why")),
        *(("errors", "replay", "id"), ("errors", "show", "id"), ("queue", "send", "Billing")),
        *(("rabbitmq", "delays", "create"), ("subscriptions", "create")),
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.usefixtures("meet")
def test_each_command_that_an_error_ends_prints_one_document(command: tuple[str, ...]) -> None:
    ran = run(*command, *_MISSING)

    assert (ran.code, ran.document["exit_code"]) == (2, 2)
    assert ran.document["error"] in ran.err
    assert "missing.toml" in ran.err


@pytest.mark.usefixtures("meet")
def test_command_of_many_results_prints_none() -> None:
    ran = run("queue", "receive", "Billing", *_MISSING)

    assert (ran.code, ran.out) == (2, "")


def _raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


_NOW = datetime(2026, 11, 23, 5, tzinfo=UTC)


def test_next_message_is_due_in_no_less_than_no_time_and_may_be_unknown() -> None:
    before, said = NextDue(_NOW - timedelta(seconds=1), _NOW), "no message can be delivered now."

    soon = replace(NOTHING, next_due=before)
    assert "due in 0 ms, at 2026-11-23 04:59:59 UTC." in idle_sentence(soon)
    assert idle_sentence(replace(NOTHING, next_due=None)) == f"{NOTHING.source}: {said}"


def test_document_has_the_time_in_iso_8601_or_null() -> None:
    known = document(replace(NOTHING, next_due=NextDue(_NOW, _NOW)))

    assert known["next_due"] == "2026-11-23T05:00:00+00:00"
    assert document(NOTHING)["next_due"] is None


def test_documents_of_all_runs_have_the_same_names_and_unknown_numbers_are_null() -> None:
    runs = (NOTHING, MOVED, UNWRITTEN, FAILED, replace(NOTHING, outcome="stopped"))

    documents = [document(run) for run in runs]

    assert {frozenset(each) for each in documents} == {frozenset(documents[0])}
    assert [each["dispatched"] for each in documents] == [0, 3, 3, None, 0]
    assert [each["error"] for each in documents[:2]] == [None, None]
    assert documents[2]["error"] == documents[2]["ledger_error"] == "the disk is full"
    assert (documents[3]["error"], documents[3]["ledger_error"]) == (str(UNREACHED), None)


def test_rows_that_the_ledger_cannot_take_are_an_error_of_a_run_without_work() -> None:
    told = document(failed_run("s", NothingDueError("the disk is full", transient=True)))

    assert (told["outcome"], told["exit_code"], told["dispatched"]) == ("idle", 4, 0)
    assert told["error"] == told["ledger_error"] == "the disk is full"
