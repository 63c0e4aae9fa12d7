"""Operators' input is literal: only `*` stands for other characters."""

from support.endpoint import ON_BOTH_SERVERS, Endpoint

# Each would also mean the others, by LIKE, by a glob, without its case or its end, or as SQL.
_NAMES = (
    *("Bill%", "Bill_", "Bill?", "Bill[i]", "Billi", "Billing", "billi", "Billi ", "Bill'i"),
    *("Bill' OR 1=1 --", 'Bill"i', "Bill\\i", "Bill{i}", "Bill%s", "$1", ":name", "^Bill.$"),
)
_REASON = ("--reason", "literally 'so' %s; --")


@ON_BOTH_SERVERS
def test_destination_means_the_messages_of_this_name_alone(endpoint: Endpoint) -> None:
    endpoint.set_up()
    keys = {name: endpoint.delay(name, due_in_seconds=3_600) for name in _NAMES}

    for name, key in keys.items():
        found = endpoint.document("list", "--destination", name)["messages"]
        assert [one["key"] for one in found] == [key], name
    assert endpoint.document("list", "--destination", "Bill*")["total"] == 13
    for name in _NAMES[:4]:
        assert endpoint.run("cancel", "--destination", name, "--yes", *_REASON).code == 0

    assert endpoint.waiting() == sorted(keys[name] for name in _NAMES[4:])
    assert {row.reason for row in endpoint.ledger.rows("changes")} == {_REASON[1]}


def test_pause_holds_its_name_alone(endpoint: Endpoint) -> None:
    endpoint.set_up("Billi", "Billing")
    endpoint.delay_many(4, ["Billi", "Billing"])
    kept = []
    for name in ("Bill%", "Bill_", "Bill?", "Bill[i]", "billi"):
        kept.append(endpoint.delay(name))
        assert endpoint.run("pause", name, *_REASON).code == 0

    assert endpoint.document("sweep")["dispatched"] == 4

    assert endpoint.waiting() == sorted(kept)


def test_input_that_means_nothing_is_refused_or_finds_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay(due_in_seconds=3_600)

    for arguments, code in (
        (("list", "--destination", ""), 0),
        (("list", "--due-before", "2026-11-01 10:00"), 2),
        (("list", "--due-after", "+2h", "--due-before", "+1h"), 2),
        (("list", "--due-before", "9999-12-31T00:00:00Z"), 0),
        (("cancel", "--destination", "", "--yes", *_REASON), 2),
        (("pause", "", *_REASON), 2),
    ):
        ran = endpoint.run(*arguments)
        assert (ran.code, "Traceback" in ran.told) == (code, False), ran
    assert len(endpoint.waiting()) == 1
