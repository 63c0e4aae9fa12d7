"""What `duesweep rabbitmq …` prints, on a broker of the tests."""

import re
from pathlib import Path

import pytest

from support.golden.commands import Printed, run
from support.golden.recorded import ROOT, compare
from support.rabbitmq.broker import Broker

SETTINGS = """
[store]
dsn = "host=192.0.2.1"
endpoint = "Sales.Orders"
[ledger]
root = "/nonexistent"
[queues.default]
kind = "rabbitmq"
url = "{url}"
management_url = "{management}"
"""
_ID = "11111111-0000-4000-8000-000000000001"
_NEW_ID = re.compile(rf"\b(?!{_ID})[0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}\b")
_BOTH = ("pipe", "json")
# Each with the forms in which it is run: the second time it finds that all is there.
STEPS = {
    "01-send-to-nobody": (["send", "Billing", "--body", "{}"], _BOTH),
    "02-delays-create": (["delays", "create"], ("terminal", "pipe", "json")),
    "03-endpoint-create": (["endpoint", "create", "Billing", "Sales.Orders"], _BOTH),
    "04-verify": (["delays", "verify"], _BOTH),
    "05-verify-harmed": (["delays", "verify"], ("terminal",)),
    "06-delays-mend": (["delays", "create"], ("json",)),
    "07-migrate-dry-run": (["delays", "migrate", "--dry-run"], _BOTH),
    # Last: the node counts messages every few seconds, and `verify` would report them or not.
    "08-send": (
        ["send", "Billing", "--body", "{}", "--header", f"NServiceBus.MessageId={_ID}"],
        _BOTH,
    ),
    "09-send-later": (["send", "Billing", "--body", "{}", "--delay", "2d"], _BOTH),
}
_HARMED = "05-verify-harmed"


def test_rabbitmq(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = SETTINGS.format(url=broker.url, management=broker.server.management_url)
    Path("duesweep.toml").write_text(settings, encoding="utf-8")
    version = broker.api("overview")["rabbitmq_version"]
    places = {
        broker.vhost: "<vhost>",
        f":{broker.server.amqp}": ":<port>",
        broker.server.management_url.rpartition(":")[2]: "<port>",
        f"RabbitMQ {version}": "RabbitMQ <version>",
    }

    def normal(text: str) -> str:
        for place, name in places.items():
            text = text.replace(place, name)
        return _NEW_ID.sub("<id>", text)

    printed = {}
    for name, (arguments, forms) in STEPS.items():
        if name == _HARMED:
            broker.channel.queue_delete("nsb.v2.delay-level-05")
        for form in forms:
            given = ["rabbitmq", *arguments, *(["--json"] if form == "json" else [])]
            result = run(given, is_terminal=form == "terminal")
            found = Printed(given, normal(result.out), normal(result.err), result.code)
            text = found.document if form == "json" else found.text
            printed[f"{name}.{form}.txt"] = text
    compare(ROOT / "rabbitmq", printed)
