"""One world of 300 messages on PostgreSQL: the output of each command, and its changes."""

import json
from datetime import timedelta
from typing import Any

import pytest

from support.endpoint import Endpoint
from support.golden import world
from support.golden.recorded import ROOT, compare
from support.golden.recorder import FORMS, Recorder, prepare


@pytest.fixture
def recorder(endpoint: Endpoint[Any], monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return prepare(endpoint, monkeypatch)


def test_world(recorder: Recorder) -> None:
    recorder.happen("empty-database")
    for part in (_prepare, _look, _sweep, _errors, _change_messages, _look_after, _operate):
        part(recorder)
    compare(ROOT / "world", recorder.printed)


def _prepare(recorder: Recorder) -> None:
    endpoint = recorder.endpoint
    recorder.look("no-tables", "sweep")
    recorder.change("setup", "terminal", "setup")
    recorder.look("setup-again", "setup", forms=("pipe", "json"))
    recorder.change("queue-create-1", "terminal", "queue", "create", "Billing")
    recorder.change("queue-create-2", "pipe", "queue", "create", "Shipping", "--readable-body")
    recorder.change("queue-create-3", "json", "queue", "create", "Shipping")
    recorder.look("queue-create-4", "queue", "create", "Reminders.Mail")
    recorder.happen("queue-of-others", lambda: endpoint.create_queue("Reminders.Mail"))
    recorder.look("sweep-nothing", "sweep")
    recorder.happen("store", recorder.store)


def _look(recorder: Recorder) -> None:
    recorder.look("doctor", "doctor", "--no-spark")
    recorder.look("doctor-verbose", "doctor", "--no-spark", "--verbose", forms=("pipe",))
    recorder.look("plan", "plan")
    recorder.look("plan-sql", "plan", "--sql", forms=("pipe",))
    recorder.look("list", "list", "--limit", "5")
    recorder.look("list-colours", "list", "--limit", "2", forms=("colours",))
    recorder.look("list-count", "list", "--count")
    filters = [
        "--destination",
        "Ship*",
        "--due-before",
        "-9d",
        "--header",
        "NServiceBus.MessageIntent=Send",
    ]
    recorder.look("list-filtered", "list", *filters, "--limit", "3")
    recorder.look("list-unknown", "list", "--destination", "Bilings")
    recorder.look("show", "show", recorder.key(b"early 0"))
    saga = recorder.number(b"early 3")
    recorder.look("show-saga", "show", "--message-id", world.message_id(saga), forms=("pipe",))
    recorder.look("show-unreadable", "show", recorder.key(b"unreadable 1"))
    recorder.look("show-long", "show", recorder.key(world.LONG), forms=("terminal",))
    recorder.look("show-xml", "show", recorder.key(world.XML), forms=("terminal",))
    recorder.look("show-unknown", "show", world.key(999))


def _sweep(recorder: Recorder) -> None:
    why = ["--reason", "the bank is down"]
    recorder.change("pause-1", "terminal", "pause", "Reminders*", *why)
    recorder.change("pause-2", "pipe", "pause", "Ship*", "--until", "+26h", *why)
    late = ["--until", "2040-01-01T08:00:00Z"]
    recorder.change("pause-3", "json", "pause", "Archive", *late, *why)
    recorder.look("paused", "paused")
    recorder.look("plan-paused", "plan")
    recorder.look("sweep-dry-run", "sweep", "--dry-run", forms=("pipe",))
    recorder.change("sweep-1", "terminal", "sweep", "--max-messages", "60")
    recorder.change("resume-1", "terminal", "resume", "Ship*")
    recorder.change("resume-2", "json", "resume", "Archive")
    recorder.look("resume-unknown", "resume", "Nobody")
    recorder.change("sweep-2", "pipe", "sweep")
    recorder.change("resume-3", "pipe", "resume", "Reminders*")
    recorder.look("paused-nothing", "paused")
    recorder.change("sweep-3", "json", "sweep")
    recorder.look("sweep-idle", "sweep")
    recorder.look("list-failing", "list", "--failing", "--limit", "8")
    recorder.look("show-failing", "show", recorder.key(b"nowhere 0"), forms=("terminal", "json"))
    recorder.happen("back-off-ends", recorder.endpoint.end_back_off)
    recorder.look("plan-failing", "plan")
    recorder.change("sweep-4", "terminal", "sweep", "--set", "retry.max_attempts=2")


def _errors(recorder: Recorder) -> None:
    nowhere = ["--destination", world.MISSING]
    why = ["--reason", "its queue is there again"]
    one, other = (recorder.number(b"nowhere %d" % number) for number in (1, 2))
    recorder.look("errors-list", "errors", "list")
    recorder.write("report", "report.html", "report", "--out", "report.html")
    recorder.look("errors-list-some", "errors", "list", *nowhere, "--limit", "3", "--since", "-1d")
    recorder.look("errors-list-unknown", "errors", "list", "--destination", "Nowere")
    recorder.look("errors-show", "errors", "show", world.message_id(one))
    recorder.look("errors-show-unknown", "errors", "show", world.message_id(999))
    recorder.look("replay-dry-run", "errors", "replay", *nowhere, "--dry-run")
    recorder.look("replay-without-reason", "errors", "replay", *nowhere, forms=("pipe",))
    recorder.look("replay-not-asked", "errors", "replay", *nowhere, *why, forms=("pipe",))
    recorder.look("replay-unclear", "errors", "replay", forms=("pipe", "json"))
    recorder.change("replay-missing", "json", "errors", "replay", *nowhere, *why, "--yes")
    recorder.change("queue-create-5", "pipe", "queue", "create", world.MISSING)
    recorder.change("replay-1", "terminal", "errors", "replay", world.message_id(one))
    recorder.change("replay-no", "terminal", "errors", "replay", *nowhere, *why, answer="n\n")
    soon = ["--due", "+50h", *why, "--yes"]
    recorder.change("replay-2", "pipe", "errors", "replay", world.message_id(other), *soon)
    recorder.change("replay-3", "terminal", "errors", "replay", *nowhere, *why, answer="y\n")
    refused = ["--error", "*RefusedMessageError"]
    recorder.change(
        "replay-4", "json", "errors", "replay", *refused, *why, "--to", "Billing", "--yes"
    )
    # They became due when they were replayed. How long ago that is depends on the machine: a plan
    # would count them under "1 minute" here and under "1 hour" there.
    endpoint, ago = recorder.endpoint, recorder.base - timedelta(days=2, minutes=15)
    later = (
        f"UPDATE {endpoint.delayed} SET due = '{ago}' WHERE due BETWEEN '{recorder.base}' AND now()"
    )
    recorder.happen("two-days-later", lambda: endpoint.execute(later))
    recorder.look("discard-dry-run", "errors", "discard", "--all", "--dry-run")
    discard = ["errors", "discard", "--reason", "of a load test", "--yes"]
    unreadable = [recorder.key(b"unreadable %d" % number) for number in range(3)]
    recorder.change("discard-1", "terminal", *discard, unreadable[0])
    recorder.change("discard-2", "pipe", *discard, *unreadable[1:])
    recorder.change("discard-3", "json", *discard, "--all")
    recorder.look("errors-list-done", "errors", "list", "--discarded", forms=("terminal", "json"))
    recorder.look("errors-show-done", "errors", "show", unreadable[0], forms=("pipe",))


def _change_messages(recorder: Recorder) -> None:
    reminders = ["--destination", "Reminders*"]
    why = ["--reason", "wrong template"]
    first, second, third = (recorder.key(b"early %d" % number) for number in (0, 1, 4))
    recorder.look("cancel-dry-run", "cancel", *reminders, "--dry-run")
    recorder.look("cancel-not-asked", "cancel", *reminders, *why, forms=("pipe",))
    recorder.look("cancel-unclear", "cancel", forms=("pipe", "json"))
    recorder.look("cancel-unknown", "cancel", "--destination", "Remindrs", "--yes", *why)
    recorder.look("cancel-gone", "cancel", world.key(999))
    recorder.change("cancel-1", "terminal", "cancel", first)
    recorder.change("cancel-no", "terminal", "cancel", *reminders, *why, answer="n\n")
    soon = ["--due-before", "+4d"]
    recorder.change("cancel-2", "terminal", "cancel", *reminders, *soon, *why, answer="y\n")
    cancelled = recorder.change("cancel-3", "json", "cancel", *reminders, *why, "--yes")
    recorder.change("cancel-4", "pipe", "cancel", second, third, *why)
    recorder.look("show-cancelled", "show", first, forms=("terminal", "json"))
    billing = ["--destination", "Billing"]
    recorder.look("reschedule-dry-run", "reschedule", *billing, "--by", "2h", "--dry-run")
    recorder.look("reschedule-unclear", "reschedule", *billing, forms=("pipe",))
    own = recorder.key(b"early 3")
    recorder.change("reschedule-1", "terminal", "reschedule", own, "--by", "-2h")
    recorder.change("reschedule-2", "pipe", "reschedule", *billing, "--to", "+50h", *why, "--yes")
    recorder.change("reschedule-3", "json", "reschedule", own, "--to", "2040-01-01T08:00:00Z")
    command = ["--command", json.loads(cancelled.out)["command_id"]]
    recorder.look("restore-dry-run", "restore", *command, "--dry-run")
    recorder.change("restore-1", "terminal", "restore", first)
    recorder.change("restore-2", "pipe", "restore", *command, *why, "--yes", "--to", "+50h")
    recorder.change("restore-3", "json", "restore", second, third, *why)
    recorder.look("restore-again", "restore", first)
    recorder.look("show-restored", "show", first, forms=("terminal",))


def _look_after(recorder: Recorder) -> None:
    endpoint = recorder.endpoint
    recorder.look("audit", "audit")
    attempts = endpoint.own_table("attempts")
    harm = (
        f"INSERT INTO {attempts} SELECT '{world.SOURCE}', '{world.key(999)}', NULL, NULL, 1, now(),"
        " now(), now(), 'duesweep.errors.QueueNotFoundError', 'There is no queue'"
    )
    index = f'DROP INDEX "{world.DUE_INDEX}"'
    recorder.happen("harm", lambda: endpoint.execute(harm), lambda: endpoint.execute(index))
    recorder.look("audit-harmed", "audit")
    recorder.look("doctor-harmed", "doctor", "--no-spark", forms=("terminal",))
    recorder.look("doctor-sql", "doctor", "--no-spark", "--print-sql", forms=("pipe",))
    recorder.change("setup-index", "pipe", "setup")
    recorder.change("maintain-1", "terminal", "maintain")
    recorder.change("maintain-2", "pipe", "maintain")
    recorder.change("maintain-3", "json", "maintain", "--set", "ledger.keep_days=1")
    recorder.look("maintain-forget", "maintain", "--forget", "nsb/public.Gone.Delayed")
    recorder.look("plan-with-rates", "plan", forms=("json",))
    recorder.write("metrics", "sales.prom", "sweep")


def _operate(recorder: Recorder) -> None:
    body = ["--body", '{"OrderId":1}']
    headers = [
        [f"--header=NServiceBus.MessageId={world.message_id(number)}", "--header=Colour=blue"]
        for number in range(901, 905)
    ]
    recorder.look("send-to-nobody", "queue", "send", "Archive", *headers[0], *body)
    recorder.change("queue-create-6", "pipe", "queue", "create", "Archive")
    recorder.change("send-1", "terminal", "queue", "send", "Archive", *headers[0], *body)
    recorder.change("send-2", "pipe", "queue", "send", "Archive", *headers[1], *body)
    expiring = ["--time-to-be-received", "50h"]
    recorder.change("send-3", "json", "queue", "send", "Archive", *headers[2], *body, *expiring)
    later = ["queue", "send", "Billing", *headers[3], *body, "--delay", "50h"]
    recorder.change("send-later", "pipe", *later)
    recorder.look("peek", "queue", "peek", "Archive")
    for number, form in enumerate(FORMS, start=1):
        recorder.change(f"receive-{number}", form, "queue", "receive", "Archive")
    recorder.look("receive-nothing", "queue", "receive", "Archive", forms=("pipe", "json"))
    unreadable = (
        f"INSERT INTO \"Archive\" (id, headers, body) VALUES ('{world.key(905)}', '{{', '')"
    )
    recorder.happen("poison", lambda: recorder.endpoint.execute(unreadable))
    recorder.change("receive-poison", "pipe", "queue", "receive", "Archive")
    recorder.look("purge-without-yes", "queue", "purge", "Shipping")
    recorder.change("purge-1", "terminal", "queue", "purge", "error", "--yes")
    recorder.change("purge-2", "json", "queue", "purge", "Reminders.Mail", "--yes")
    recorder.look("purge-expired", "queue", "purge-expired", "Shipping")
    subscribe = ["subscriptions", "add", "Sales.OrderPlaced"]
    recorder.change("subscribe-1", "terminal", *subscribe, "Billing", "--subscriber", "Billing")
    recorder.change("subscribe-2", "json", *subscribe, "Shipping", "--subscriber", "Shipping")
    recorder.look("subscribers", "subscriptions", "list", "Sales.OrderPlaced")
    recorder.look("subscriptions-create", "subscriptions", "create")
    unsubscribe = ["subscriptions", "remove", "Sales.OrderPlaced", "--subscriber"]
    recorder.change("unsubscribe-1", "pipe", *unsubscribe, "Billing")
    recorder.change("unsubscribe-2", "json", *unsubscribe, "Nobody")
    recorder.look("handover", "handover", "--dry-run")
    recorder.look("unknown-command", "sweeep", forms=("pipe",))
    recorder.look("unknown-option", "plan", "--sqll", forms=("pipe", "json"))
    recorder.look("no-command", forms=("terminal",))
