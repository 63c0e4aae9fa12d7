"""Names that attack: each is one identifier or one value, and nothing else is touched."""

import json

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint

Capture = pytest.CaptureFixture[str]

ATTACKS = {
    "quote": 'a"; DROP TABLE victim; --',
    "apostrophe": "a'; DROP TABLE victim; --",
    "both": "'\"); DELETE FROM victim; --\"'",
    "dollar": "$$; DROP TABLE victim; $$",
    "backslash": "a\\'; DROP TABLE victim; --",
    "comment": "a*/; DROP TABLE victim; /*--",
    "brackets": "a]]; DROP TABLE victim --[",
    "braces": "{victim} {0} {due!r}",
    "percent": "%s %(source)s %% %b",
    "lines": "a\n; DROP TABLE victim;\n--",
    "blanks": " ; -- ",
    "template": "${victim} `victim`",
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


@pytest.fixture
def victim(endpoint: Endpoint) -> Endpoint:
    endpoint.execute("CREATE TABLE victim (a int)")
    endpoint.execute("INSERT INTO victim VALUES (1)")
    return endpoint


def _is_whole(victim: Endpoint) -> bool:
    return [row.a for row in victim.fetch("SELECT a FROM public.victim")] == [1]


def _quoted(name: str) -> str:
    """An address of one identifier."""
    return '"' + name.replace('"', '""') + '"'


@every_attack
def test_attack_as_schema_table_endpoint_source_and_queue_is_a_name_like_any_other(
    attack: str, victim: Endpoint, capsys: Capture
) -> None:
    hostile = victim.named(attack, f"s{attack}", f"d{attack}")
    names = {"store__name": attack, "retry__error_queue": _quoted(f"e{attack}")}
    queue = _quoted(attack)
    hostile.set_up(queue, **names)
    hostile.delay_many(3, [queue, None])
    hostile.delay(_quoted(f"no{attack}"))
    file = str(hostile.config_file(**names, retry__max_attempts=1))

    assert main(["sweep", "--json", "--config", file]) == 3

    summary = json.loads(capsys.readouterr().out)
    assert (summary["source"], summary["dispatched"], summary["exhausted"]) == (attack, 3, 1)
    assert hostile.waiting() == []
    # The endpoint's own queue and the other have one name, and are one table.
    assert len(hostile.queue_rows(queue)) == 3
    assert len(hostile.queue_rows(_quoted(f"e{attack}"))) == 1
    assert main(["doctor", "--no-spark", "--config", file]) in {0, 3}
    assert _is_whole(victim)


@every_attack
def test_attack_on_the_command_line_of_queues_is_a_name_like_any_other(
    attack: str, victim: Endpoint, capsys: Capture
) -> None:
    victim.set_up()
    more = ["--config", str(victim.config_file())]
    queue, table = _quoted(attack), _quoted(f"t{attack}")

    def run(*arguments: str) -> None:
        assert main([*arguments, *more]) == 0, capsys.readouterr().err

    run("queue", "create", queue)
    run("queue", "send", queue, "--header", f"a={attack}", "--body", attack)
    run("queue", "send", queue, "--body", attack, "--delay", "1h")
    run("queue", "peek", queue)
    run("queue", "receive", queue)
    run("queue", "purge", queue, "--yes")
    run("subscriptions", "create", "--table", table)
    run("subscriptions", "add", attack, queue, "--endpoint", attack, "--table", table)
    run("subscriptions", "list", attack, "--table", table)
    run("subscriptions", "remove", attack, "--endpoint", attack, "--table", table)

    assert _is_whole(victim)


@every_attack
def test_attack_in_a_message_fails_that_message_alone(
    attack: str, victim: Endpoint, capsys: Capture
) -> None:
    victim.set_up("Billing")
    victim.delay(attack)
    victim.delay(headers=attack)
    victim.delay(headers=json.dumps({attack: attack, "NServiceBus.MessageId": attack}))
    victim.delay("Billing", body=attack.encode())
    file = str(victim.config_file(retry__max_attempts=1))

    assert main(["sweep", "--json", "--config", file]) == 3

    summary = json.loads(capsys.readouterr().out)
    assert (summary["dispatched"], summary["exhausted"]) == (2, 2)
    assert [bytes(row.body) for row in victim.queue_rows("Billing")] == [attack.encode()]
    assert _is_whole(victim)


@pytest.mark.parametrize("key", ["endpoint", "schema", "delayed_table", "name", "writer_time_zone"])
def test_name_with_a_nul_is_refused(key: str, victim: Endpoint, capsys: Capture) -> None:
    file = victim.set_up().config_file(**{f"store__{key}": "a\0; DROP TABLE victim"})

    assert main(["sweep", "--config", str(file)]) == 2

    assert f"store.{key}" in capsys.readouterr().err
    assert _is_whole(victim)


def test_queue_with_a_nul_is_refused(victim: Endpoint, capsys: Capture) -> None:
    file = victim.set_up().config_file(retry__error_queue="a\0b")

    assert main(["sweep", "--config", str(file)]) == 2

    assert "holds a NUL" in capsys.readouterr().err
