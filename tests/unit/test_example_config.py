"""The example configuration lists every setting with its default."""

import tomllib
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep.config import Config

_EXAMPLE = Path(__file__).parents[2] / "conf" / "duesweep.toml"


def test_example_configuration_is_accepted() -> None:
    assert configuration.load(_EXAMPLE).store.endpoint == "Sales.Orders"


def test_example_names_every_setting_and_its_default() -> None:
    text = _EXAMPLE.read_text(encoding="utf-8")
    given = tomllib.loads(text)

    for section, field in Config.model_fields.items():
        model: Any = configuration.QueueConfig if section == "queues" else field.annotation
        for name, setting in model.model_fields.items():
            key = setting.alias or name
            assert f"\n{key} = " in text or f"\n# {key} = " in text, key
            values = given[section]["default"] if section == "queues" else given[section]
            if key in values and not setting.is_required():
                assert values[key] == setting.default, key
