"""Stores that users bring: how they are made, and what is said where they cannot be."""

import inspect
from pathlib import Path
from textwrap import dedent

import pytest

from duesweep import wiring
from duesweep.cli.app import main
from duesweep.config import Config, load
from duesweep.core.address import TableName
from duesweep.errors import ConfigError
from duesweep.stores.postgresql.setup import PostgreSqlSetup
from duesweep.wiring import operations
from duesweep.wiring.installing import CustomStoreStep
from support.acme_stores import AcmeStore

DSN = "postgresql://sweeper:s3cret@db.example:5432/sales"
DSN_WITHOUT_PASSWORD = DSN.replace(":s3cret", "")
SETTINGS = {
    "store.kind": "support.acme_stores:AcmeStore",
    "store.dsn": DSN,
    "store.endpoint": "Sales.Orders",
    "queues.default.kind": "postgresql",
    "ledger.root": "/ledger",
}


def _settings(**more: str) -> list[str]:
    settings = SETTINGS | {name.replace("__", "."): value for name, value in more.items()}
    return [f"{name}={value}" for name, value in settings.items()]


def _config(**more: str) -> Config:
    return load(None, _settings(**more))


def _refused(**more: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        wiring.sweep_context(_config(**more))
    return caught.value


def test_store_is_made_from_the_settings_of_its_section() -> None:
    config = _config(
        store__name="orders",
        store__schema="my schema",
        store__delayed_table="Late",
        store__options__zone="Asia/Kolkata",
    )

    store = wiring.store(config)

    assert isinstance(store, AcmeStore)
    assert (store.dsn, store.source) == (DSN, "orders")
    assert store.delayed == TableName("my schema", "Late")
    assert store.writer_time_zone == "Asia/Kolkata"


def test_example_in_the_documentation_is_this_store() -> None:
    text = (Path(__file__).parents[3] / "docs" / "stores.md").read_text(encoding="utf-8")

    assert dedent(inspect.getsource(AcmeStore)) in text


def test_schema_of_a_custom_store_is_its_queues_too() -> None:
    transport = operations.transport(_config(store__schema="my schema"))

    assert transport.addresses.parse("Billing") == TableName("my schema", "Billing")
    assert operations.transport(_config()).addresses.parse("x") == TableName("public", "x")


def test_schema_of_a_connection_overrides_the_stores() -> None:
    config = _config(store__schema="my schema", queues__default__schema="other")

    assert operations.transport(config).addresses.parse("x") == TableName("other", "x")


def test_schema_of_a_store_of_another_dialect_is_not_the_queues() -> None:
    config = _config(
        store__kind="sqlserver",
        store__dsn="Server=h;Database=d",
        store__schema="sales",
        queues__default__dsn=DSN,
    )

    assert operations.transport(config).addresses.parse("x") == TableName("public", "x")


@pytest.mark.parametrize("kind", ["acme.absent:Store", "acme_stores_absent:Store"])
def test_module_that_is_missing_is_named(kind: str) -> None:
    refusal = str(_refused(store__kind=kind))

    assert f"store.kind is '{kind}', which cannot be imported" in refusal
    assert f"ModuleNotFoundError of {kind.partition(':')[0].partition('.')[0]}" in refusal
    assert "PYTHONPATH" in refusal


def test_module_that_raises_is_named_and_its_words_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_raising.py").write_text(f"raise ValueError({DSN!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    refusal = _refused(store__kind="acme_raising:Store")

    assert "which cannot be imported (builtins.ValueError)" in str(refusal)
    assert "s3cret" not in str(refusal)
    assert isinstance(refusal.__cause__, ValueError)


def test_class_that_is_missing_is_named() -> None:
    assert "support.acme_stores has no Store" in str(
        _refused(store__kind="support.acme_stores:Store")
    )


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("RaisingStore", "RuntimeError"),
        ("LazilyRaisingStore", "KeyError"),
        ("StoreOfNothing", "TypeError"),
    ],
)
def test_class_that_raises_is_named_and_its_words_are_not_repeated(name: str, error: str) -> None:
    refusal = _refused(store__kind=f"support.acme_stores:{name}")

    assert f"support.acme_stores:{name} cannot be made from a StoreSettings" in str(refusal)
    assert f"it raises builtins.{error};" in str(refusal)
    assert "s3cret" not in str(refusal)
    assert type(refusal.__cause__).__name__ == error


def test_methods_that_are_missing_are_named() -> None:
    lacks = str(_refused(store__kind="support.acme_stores:HalfAStore"))

    assert "is not a store: it lacks open_messages;" in lacks


def _on_command_line(settings: list[str]) -> list[str]:
    """The settings as options, which take no passwords."""
    given = [setting.replace(DSN, DSN_WITHOUT_PASSWORD) for setting in settings]
    return [part for setting in given for part in ("--set", setting)]


def test_store_without_a_kind_for_its_queues_is_refused_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = [s for s in _settings() if not s.startswith("queues")]
    given = _on_command_line(settings)

    assert main(["sweep", *given]) == 2

    said = capsys.readouterr().err
    refused = "duesweep: queues.default.kind is not set, and a store of kind support.acme_"
    assert said.startswith(refused)
    assert said.count("\n") == 1


def test_section_of_queues_without_a_kind_is_refused_too() -> None:
    settings = [s for s in _settings() if not s.startswith("queues")]

    with pytest.raises(ConfigError, match=r"queues\.default\.kind is not set, and a store of kind"):
        load(None, [*settings, f"queues.default.dsn={DSN}"])


@pytest.mark.parametrize(
    ("name", "kind"), [("StrangeStore", "postgresql"), ("AcmeStore", "sqlserver")]
)
def test_queues_that_can_be_in_no_transaction_of_the_stores_need_a_dsn(
    name: str, kind: str
) -> None:
    config = _config(
        store__kind=f"support.acme_stores:{name}", queues__default__kind=kind, store__dsn="Server=h"
    )

    for use in (wiring.sweep_context, wiring.queue, wiring.installer, operations.transport):
        with pytest.raises(
            ConfigError, match=r"queues\.default\.dsn is not set, .* support\.acme_stores"
        ):
            use(config)


def test_queues_of_a_strange_store_are_where_their_dsn_leads() -> None:
    context = wiring.sweep_context(
        _config(
            store__kind="support.acme_stores:StrangeStore",
            queues__default__dsn="postgresql://other/q",
        )
    )

    assert not context.queue.shares_transaction


def test_store_sets_itself_up_and_queues_beside_it_are_created() -> None:
    installer = wiring.installer(_config(retry__error_queue="error"))

    store_step, queue_step = installer.steps
    assert isinstance(store_step, CustomStoreStep)
    assert queue_step == PostgreSqlSetup(
        DSN, "store.dsn", (TableName("public", "Sales.Orders"), TableName("public", "error"))
    )
    assert "-- AcmeStore sets itself up." in installer.script()
    assert 'CREATE TABLE IF NOT EXISTS "public"."error"' in installer.script()


def test_store_that_creates_nothing_is_said_to_need_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = _settings(
        store__kind="support.acme_stores:StrangeStore",
        queues__default__dsn="postgresql://other/q",
    )

    assert main(["setup", "--print-sql", *_on_command_line(settings)]) == 0

    assert "-- StrangeStore expects its tables to exist." in capsys.readouterr().out


def test_rebind_is_refused_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(AcmeStore, "set_up_infrastructure", lambda store: asked.extend([store]))

    with pytest.raises(ConfigError, match="AcmeStore has a journal of its own"):
        wiring.installer(_config()).install(rebind=True)

    assert asked == []


def test_nothing_is_sent_later_through_a_custom_store(capsys: pytest.CaptureFixture[str]) -> None:
    given = _on_command_line(_settings())

    assert main(["queue", "send", "Billing", "--delay", "1s", *given]) == 2

    assert "the store is of kind support.acme_stores:AcmeStore; send it without a delay" in (
        capsys.readouterr().err
    )
