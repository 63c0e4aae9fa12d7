"""Stores that users bring: how they are made, and the errors if they cannot be."""

import inspect
import re
from pathlib import Path
from textwrap import dedent

import pytest

from duesweep import Duesweep
from duesweep.config import Config, load
from duesweep.config.adapters.context import store_of, sweep_context
from duesweep.config.adapters.roles import CustomStoreStep, setup_steps
from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError
from duesweep.core.policy import Timeouts
from duesweep.queues.postgresql import postgresql_queue
from duesweep.queues.tables import ERROR, OWN
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.setup import SqlSetup
from duesweep_transport.configured import transport_of
from support.acme_stores import AcmeStore
from support.commands import run

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
        sweep_context(_config(**more))
    return caught.value


def test_store_is_made_from_the_settings_of_its_section() -> None:
    config = _config(
        store__name="orders",
        store__schema="my schema",
        store__delayed_table="Late",
        store__options__zone="Asia/Kolkata",
    )

    store = store_of(config)

    assert isinstance(store, AcmeStore)
    assert (store.dsn, store.source) == (DSN, "orders")
    assert store.delayed == TableName("my schema", "Late")
    assert store.writer_time_zone == "Asia/Kolkata"


def test_example_in_the_documentation_is_this_store() -> None:
    text = (Path(__file__).parents[3] / "docs" / "stores.md").read_text(encoding="utf-8")

    assert dedent(inspect.getsource(AcmeStore)) in text


OF_SQL_SERVER = {"store__kind": "sqlserver", "store__dsn": "Server=h;Database=d"}


@pytest.mark.parametrize(
    ("settings", "schema"),
    [
        ({}, "public"),
        ({"store__schema": "my schema"}, "my schema"),
        ({"store__schema": "my schema", "queues__default__schema": "other"}, "other"),
        ({**OF_SQL_SERVER, "store__schema": "sales", "queues__default__dsn": DSN}, "public"),
    ],
    ids=["default", "of the store", "of the connection", "of a store of another dialect"],
)
def test_queues_of_a_custom_store_are_in_its_schema(settings: dict[str, str], schema: str) -> None:
    transport = transport_of(_config(**settings))

    assert transport.addresses.parse("x") == TableName(schema, "x")


MODULE = "support.acme_stores"
ABSENT = "store.kind is '{kind}', which cannot be imported"
CANNOT = "{kind} cannot be made from a StoreSettings"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("acme.absent:Store", (ABSENT, "ModuleNotFoundError of acme", "PYTHONPATH")),
        ("acme_stores_absent:Store", (ABSENT, "ModuleNotFoundError of acme_stores_absent")),
        (f"{MODULE}:Store", (f"{MODULE} has no Store",)),
        (f"{MODULE}:RaisingStore", (CANNOT, "it raises builtins.RuntimeError;")),
        (f"{MODULE}:LazilyRaisingStore", (CANNOT, "it raises builtins.KeyError;")),
        (f"{MODULE}:StoreOfNothing", (CANNOT, "it raises builtins.TypeError;")),
        (
            f"{MODULE}:HalfAStore",
            ("is not a store: it lacks set_up_infrastructure, operators;",),
        ),
    ],
)
def test_store_that_cannot_be_made_is_named_and_its_words_are_not_repeated(
    kind: str, says: tuple[str, ...]
) -> None:
    refusal = _refused(store__kind=kind)

    for words in says:
        assert words.format(kind=kind) in str(refusal)
    assert "s3cret" not in str(refusal)
    if CANNOT in says:
        assert type(refusal.__cause__).__name__ in says[1]


def test_module_that_raises_is_named_and_its_words_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_raising.py").write_text(f"raise ValueError({DSN!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    refusal = _refused(store__kind="acme_raising:Store")

    assert "which cannot be imported (builtins.ValueError)" in str(refusal)
    assert "s3cret" not in str(refusal)
    assert isinstance(refusal.__cause__, ValueError)


def test_store_written_for_other_contracts_is_told_which_module_lacks_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_old.py").write_text("from duesweep.stores.base import NoSuchContract\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    refusal = _refused(store__kind="acme_old:Store")

    assert "(builtins.ImportError of duesweep.stores.base)" in str(refusal)


def _on_command_line(settings: list[str]) -> list[str]:
    """The settings as options, which take no passwords."""
    given = [setting.replace(DSN, DSN_WITHOUT_PASSWORD) for setting in settings]
    return [part for setting in given for part in ("--set", setting)]


def test_store_without_a_kind_for_its_queues_is_refused_with_one_sentence() -> None:
    settings = [s for s in _settings() if not s.startswith("queues")]
    refused = "queues.default.kind is not set, and a store of kind support.acme_"

    (said,) = run("sweep", *_on_command_line(settings)).err.splitlines()

    assert said.startswith(f"duesweep: {refused}")
    with pytest.raises(ConfigError, match=re.escape(refused)):
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

    for use in (sweep_context, lambda one: Duesweep(one).setup_script(), transport_of):
        with pytest.raises(
            ConfigError, match=r"queues\.default\.dsn is not set, .* support\.acme_stores"
        ):
            use(config)


def test_store_sets_itself_up_and_queues_beside_it_are_created() -> None:
    config = _config(retry__error_queue="error")

    store_step, queue_step = setup_steps(config)
    assert isinstance(store_step, CustomStoreStep)
    assert queue_step == SqlSetup(
        dialect=POSTGRESQL,
        dsn=DSN,
        setting="store.dsn",
        queues=[
            postgresql_queue(OWN, TableName("public", "Sales.Orders")),
            postgresql_queue(ERROR, TableName("public", "error")),
        ],
        timeouts=Timeouts(is_alone=True),
    )
    assert "-- AcmeStore sets itself up." in Duesweep(config).setup_script()
    assert 'CREATE TABLE IF NOT EXISTS "public"."error"' in Duesweep(config).setup_script()


def test_store_that_creates_nothing_is_said_to_need_what_it_needs() -> None:
    strange = {"store__kind": f"{MODULE}:StrangeStore", "queues__default__dsn": "postgresql://o/q"}

    ran = run("setup", "--print-sql", *_on_command_line(_settings(**strange)))

    assert (ran.code, "-- StrangeStore expects its tables to exist." in ran.out) == (0, True)


def test_rebind_is_refused_before_anything_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(AcmeStore, "set_up_infrastructure", lambda store: asked.extend([store]))

    with pytest.raises(ConfigError, match="AcmeStore has a journal of its own"):
        Duesweep(_config()).setup(rebind=True)

    assert asked == []


@pytest.mark.parametrize(
    ("kind", "dsn"),
    [
        (f"{MODULE}:AcmeStore", DSN_WITHOUT_PASSWORD),
        ("sql-persistence", DSN_WITHOUT_PASSWORD),
        ("msmq", "Server=db.example;Database=nsb;Trusted_Connection=yes"),
    ],
)
def test_nothing_is_sent_later_through_a_store_of_another_kind(kind: str, dsn: str) -> None:
    settings = _settings(store__kind=kind, store__dsn=dsn)
    if kind == "msmq":
        settings.remove("queues.default.kind=postgresql")

    ran = run("queue", "send", "Billing", "--delay", "1s", *_on_command_line(settings))

    told = f"the store is of kind {kind}. Send it without a delay"
    assert (ran.code, told in ran.err) == (2, True)
