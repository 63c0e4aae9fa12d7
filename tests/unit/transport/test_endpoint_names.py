"""Names of endpoints for `duesweep rabbitmq endpoint create`."""

from pathlib import Path

import pytest

from support.commands import run


@pytest.mark.parametrize("name", ["", "n" * 300, "amq.orders"])
def test_name_that_no_queue_can_have_is_refused_before_a_broker_is_asked(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "duesweep.toml"
    file.write_text(
        'store.dsn = "postgresql://x@127.0.0.1:1/x"\nstore.endpoint = "Sales"\n'
        'ledger.root = "./ledger"\n'
        'queues.default = {kind = "rabbitmq", url = "amqp://u@127.0.0.1:1"}\n'
    )

    refused = run("rabbitmq", "endpoint", "create", name, "--config", str(file))

    assert (refused.code, "cannot be the name of a queue" in refused.err) == (2, True), refused
