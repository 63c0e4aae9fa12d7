"""The example configuration lists every setting with its default."""

import tomllib
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep.config import Config

_REPEATED = {"queues": configuration.QueueConfig, "route": configuration.RouteConfig}
# What the kind of the store decides.
_STORE_DEFAULTS = {"store.schema": "public"}
_EXAMPLE = Path(__file__).parents[2] / "conf" / "duesweep.toml"


def test_example_configuration_is_accepted() -> None:
    assert configuration.load(_EXAMPLE).store.endpoint == "Sales.Orders"


def test_example_names_every_setting_and_its_default() -> None:
    text = _EXAMPLE.read_text(encoding="utf-8")
    given = tomllib.loads(text)

    for section, field in Config.model_fields.items():
        model: Any = _REPEATED.get(section, field.annotation)
        values = given.get(section, {})
        for name, setting in model.model_fields.items():
            key = setting.alias or name
            assert f"\n{key} = " in text or f"\n# {key} = " in text, key
            if key in values and not setting.is_required():
                default = _STORE_DEFAULTS.get(f"{section}.{key}", setting.default)
                assert values[key] == default, key
