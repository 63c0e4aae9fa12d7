"""The examples in conf/: a list of every setting, and one for each kind of store."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.core.finding import Severity
from duesweep.operations.doctor import route_findings

_REPEATED = {
    "queues": configuration.QueueConfig,
    "route": configuration.RouteConfig,
    "limit": configuration.LimitConfig,
}
_CONF = Path(__file__).parents[3] / "conf"
_LIST = _CONF / "duesweep.toml"
_EXAMPLES = ("postgresql", "sqlserver", "msmq", "sql-persistence", "rabbitmq")
_SECTION = re.compile(r"(?:# )?\[+(\w+)[\w.]*\]+$")
_SETTING = re.compile(r"(# )?(\w+) = .+$")
_ODBC, _URL = "Server=db.example;Database=nsb", "postgresql://sweeper@db.example/nsb"


class _Line(NamedTuple):
    """A setting in the list; `is_out`: commented out."""

    section: str
    name: str
    value: Any
    is_out: bool


def _lines() -> Iterator[_Line]:
    section = ""
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        elif setting := _SETTING.match(line):
            (value,) = tomllib.loads(line.removeprefix("# ")).values()
            yield _Line(section, setting[2], value, bool(setting[1]))


def _settings() -> Iterator[tuple[tuple[str, str], FieldInfo]]:
    for section, field in Config.model_fields.items():
        model: Any = _REPEATED.get(section, field.annotation)
        for name, setting in model.model_fields.items():
            yield (section, setting.alias or name), setting


_SETTINGS = dict(_settings())


def test_list_names_every_setting_once_and_no_other() -> None:
    named = [(line.section, line.name) for line in _lines()]

    assert sorted(named) == sorted(_SETTINGS)


def test_list_tells_the_true_default() -> None:
    assert [line for line in _lines() if not _tells_the_default(line)] == []


def _tells_the_default(line: _Line) -> bool:
    setting = _SETTINGS[line.section, line.name]
    default = setting.get_default(call_default_factory=True, validated_data={})
    # A dsn in an example would be one that leads nowhere. Without a default, it is an example of
    # an unset setting.
    if (line.section, line.name) == ("store", "dsn"):
        return line.is_out
    if setting.is_required():
        return line.is_out == (line.section in _REPEATED)
    if default is None:
        return line.is_out
    return bool(line.value == (list(default) if isinstance(default, tuple) else default))


@pytest.mark.parametrize(
    ("kind", "dsn"),
    [
        ("postgresql", _URL),
        ("sqlserver", _ODBC),
        ("msmq", _ODBC),
        ("sql-persistence", _URL),
        ("sql-persistence", _ODBC),
    ],
)
def test_list_is_accepted_for_each_kind_of_store(kind: str, dsn: str) -> None:
    config = configuration.load(_LIST, [f"store.kind={kind}", f"store.dsn={dsn}"])

    assert config.store.dsn == SecretStr(dsn)
    assert config.store.endpoint == "Sales.Orders"


def test_list_is_accepted_for_a_custom_store_with_a_kind_of_queue() -> None:
    given = ["store.kind=acme.stores:OracleStore", "store.dsn=x", "queues.default.kind=postgresql"]

    assert configuration.load(_LIST, given).store.is_custom


def test_there_is_an_example_for_each() -> None:
    assert {path.stem for path in _CONF.glob("*.toml")} == {"duesweep", *_EXAMPLES}


@pytest.mark.parametrize("name", _EXAMPLES)
def test_sweep_can_be_made_from_each_example(name: str) -> None:
    dsn = _URL if name in {"postgresql", "sql-persistence"} else _ODBC
    broker = ["queues.main.url=amqps://broker/nsb"] if name == "rabbitmq" else []
    config = configuration.load(_CONF / f"{name}.toml", [f"store.dsn={dsn}", *broker])

    context = sweep_context(config)

    assert context.retry.error_queue == "error"
    assert context.queue.shares_transaction == (name != "rabbitmq")
    assert name in {config.store.kind, *(queue.kind for queue in config.queues.values())}
    assert not [f for f in route_findings(config) if f.severity is not Severity.OK]
    assert configuration.route_notice(config) is None
