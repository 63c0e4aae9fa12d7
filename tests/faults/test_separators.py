"""Characters at which Python splits lines, and JSON does not, in texts that the ledger has."""

import json

from support.endpoint import Endpoint

_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def test_line_separators_in_messages_stop_no_sweep(endpoint: Endpoint) -> None:
    swept = endpoint.having(retry__max_attempts=1).set_up("Billing")
    assert swept.run("sweep").code == 0
    for separator in _SEPARATORS:
        headers = {
            "NServiceBus.MessageId": f"m{separator}",
            "NServiceBus.EnclosedMessageTypes": f"t{separator}",
            "NServiceBus.SqlServer.ForwardDestination": f"Nowhere{separator}",
        }
        swept.delay(headers=json.dumps(headers, ensure_ascii=False, separators=(",", ":")))
    swept.delay("Billing")

    codes = [swept.run("sweep").code for _ in range(2)]

    assert codes == [3, 0]
    errors = swept.ledger.rows("errors")
    assert sorted(row.message_id for row in errors) == [f"m{each}" for each in sorted(_SEPARATORS)]
    assert not (swept.folder / "ledger" / ".duesweep.dropped").exists()
    assert swept.run("audit").code == swept.run("maintain").code == 0


def test_commits_that_the_journal_does_not_have_are_not_dropped(endpoint: Endpoint) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - as another program would

    endpoint.set_up("Billing")
    for _ in range(6):
        endpoint.delay()
        assert endpoint.run("sweep").code == 0
    root = endpoint.folder / "ledger"
    DeltaTable(str(root / "tombstones")).create_checkpoint()
    mark = root / ".duesweep.synced"
    mark.write_text(json.dumps(json.loads(mark.read_text("utf-8")) | {"tombstones": 1}), "utf-8")
    for version in range(4):
        (root / "tombstones" / "_delta_log" / f"{version:020}.json").unlink()
    endpoint.delay()

    assert endpoint.run("sweep").code == 0

    assert len(endpoint.ledger.rows("tombstones")) == 7
    assert not (root / ".duesweep.dropped").exists()
