"""Names that attack: each is one identifier or one value, and changes nothing else."""

import json

import pytest

from support.endpoint import Endpoint

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
    # With the letter before it, as long as names of PostgreSQL may be.
    "length": "x" * 62,
}


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


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_attack_as_schema_table_endpoint_source_and_queue_is_a_name_like_any_other(
    attack: str, victim: Endpoint
) -> None:
    names = {"store__name": attack, "retry__error_queue": _quoted(f"e{attack}")}
    hostile = victim.named(attack, f"s{attack}", f"d{attack}").having(**names)
    queue = _quoted(attack)
    hostile.set_up(queue)
    hostile.delay_many(3, [queue, None])
    hostile.delay(_quoted(f"no{attack}"))

    failed = hostile.document("sweep", code=3)
    hostile.end_back_off()
    exhausted = hostile.document("sweep", code=3, retry__max_attempts=2)

    assert (failed["source"], failed["dispatched"], failed["failed"]) == (attack, 3, 1)
    assert (exhausted["source"], exhausted["exhausted"]) == (attack, 1)
    assert (hostile.waiting(), hostile.ledger.rows("retries")) == ([], [])
    assert [row.source for row in hostile.ledger.rows("tombstones")] == [attack] * 4
    # The endpoint's own queue and the other have one name, and are one table.
    assert len(hostile.queue_rows(queue)) == 3
    assert len(hostile.queue_rows(_quoted(f"e{attack}"))) == 1
    assert hostile.run("doctor", "--no-spark").code in {0, 3}
    assert _is_whole(victim)


def test_attack_on_the_command_line_of_queues_is_a_name_like_any_other(victim: Endpoint) -> None:
    victim.set_up()

    for attack in ATTACKS.values():
        queue, of_table = _quoted(attack), ("--table", _quoted(f"t{attack}"))
        for command in (
            ("queue", "create", queue),
            ("queue", "send", queue, "--header", f"a={attack}", "--body", attack),
            ("queue", "send", queue, "--body", attack, "--delay", "1h"),
            ("queue", "peek", queue),
            ("queue", "receive", queue),
            ("queue", "purge", queue, "--yes"),
            ("subscriptions", "create", *of_table),
            ("subscriptions", "add", attack, queue, "--subscriber", attack, *of_table),
            ("subscriptions", "list", attack, *of_table),
            ("subscriptions", "remove", attack, "--subscriber", attack, *of_table),
        ):
            ran = victim.run(*command)
            assert ran.code == 0, (attack, ran.err)
        assert _is_whole(victim), attack


def test_attack_in_a_message_fails_that_message_alone(victim: Endpoint) -> None:
    victim.set_up("Billing")
    attacks, failed = sorted(ATTACKS.values()), set()
    for attack in attacks:
        failed |= {victim.delay(attack), victim.delay(headers=attack)}
        victim.delay(headers=json.dumps({attack: attack, "NServiceBus.MessageId": attack}))
        victim.delay("Billing", body=attack.encode())

    summary = victim.document("sweep", code=3, retry__max_attempts=1)

    assert (summary["dispatched"], summary["exhausted"]) == (2 * len(attacks), len(failed))
    assert {row.message_key for row in victim.ledger.rows("errors")} == failed
    arrived = [bytes(row.body or b"").decode() for row in victim.queue_rows("Billing")]
    assert sorted(arrived) == attacks
    assert _is_whole(victim)


@pytest.mark.parametrize("key", ["endpoint", "schema", "delayed_table", "name", "writer_time_zone"])
def test_name_with_a_nul_is_refused(key: str, victim: Endpoint) -> None:
    ran = victim.set_up().run("sweep", **{f"store__{key}": "a\0; DROP TABLE victim"})

    assert (ran.code, f"store.{key}" in ran.err) == (2, True)
    assert _is_whole(victim)


def test_queue_with_a_nul_is_refused(victim: Endpoint) -> None:
    ran = victim.set_up().run("sweep", retry__error_queue="a\0b")

    assert (ran.code, "holds a NUL" in ran.err) == (2, True)
