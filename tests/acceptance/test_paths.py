"""A relative ledger has one place, wherever a command runs, and no other ledger is read."""

from pathlib import Path

import pytest

from support.commands import run
from support.endpoint import ON_BOTH_SERVERS, Endpoint

pytestmark = ON_BOTH_SERVERS
_RELATIVE = {"ledger__root": "./ledger"}


@pytest.mark.parametrize("is_fleet", [False, True])
def test_sweeps_of_two_working_folders_have_one_ledger(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_fleet: bool
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    entry = f'store.endpoint = "{endpoint.name}"'
    file = (
        endpoint.fleet_file(entry, **_RELATIVE) if is_fleet else endpoint.config_file(**_RELATIVE)
    )
    for number, name in enumerate(("home", "cron"), 1):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        endpoint.delay("Nowhere")

        assert run("sweep", "--config", str(file), "--set", "retry.max_attempts=1").code == 3
        errors = run("errors", "list", "--config", str(file), "--json")

        assert (errors.code, errors.document["groups"][0]["open"]) == (0, number)
        assert list(folder.iterdir()) == []
    shown = run("config", "--config", str(file)).out
    assert str(endpoint.folder / "ledger") in shown


def test_another_ledger_is_read_by_no_command_and_the_last_place_is_told(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    assert endpoint.run("sweep").code == 0
    own, other = endpoint.folder / "ledger", endpoint.folder / "other"
    endpoint.delay("Billing")
    moved = {"ledger__root": str(other)}
    assert endpoint.having(store__name="neighbour").run("sweep", **moved).code == 0
    key = endpoint.delay("Billing", due_in_seconds=3600)
    endpoint.delay("Billing")

    for command in (
        *(("errors", "list"), ("errors", "show", key), ("errors", "replay", key)),
        *(("audit",), ("maintain",), ("sweep",), ("restore", key), ("show", "gone")),
    ):
        ran = endpoint.run(*command, **moved)
        assert ran.code == 2, (command, ran)
        assert f", which was at {own}, but ledger " in ran.err, ran.err
    shown = endpoint.document("show", key, **moved)
    assert shown["history"] == []
    assert f"which was at {own}, but" in shown["history_error"]
    (page,) = endpoint.document("report", **moved)["sources"]
    assert page["history"] is None
    assert any(f"which was at {own}, but" in each for each in page["problems"])
    assert endpoint.document("plan", **moved)["seconds"] is None
    found = endpoint.run("doctor", "--no-spark", **moved)
    assert f", which was at {own}, but ledger " in found.told
    own.rename(other / "moved")
    # The place is the last one, also if the ledger moved rightly.
    assert endpoint.run("sweep", ledger__root=str(other / "moved")).code == 0
    endpoint.delay("Billing")
    lost = endpoint.run("sweep")
    assert f", which was at {other / 'moved'}, but no ledger is at {own}" in lost.err
