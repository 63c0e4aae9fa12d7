"""What is wrong with a configuration, in a sentence each."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from duesweep.config.model import Config
from duesweep.config.sections import QueueConfig, RouteConfig

# By pydantic's names for what is wrong.
_REASONS = {
    **dict.fromkeys(
        ["model_type", "model_attributes_type", "dict_type"],
        "it is a section with settings of its own, and was given as a value",
    ),
    "tuple_type": "it is a list of sections, each headed [[route]]",
    **dict.fromkeys(["string_too_short", "too_short"], "it is empty"),
}


def sentence_of(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors says."""
    path = _path(error["loc"])
    if error["loc"] == ("store", "kind"):
        return (
            f"store.kind is wrong: {error['input']!r} is none of postgresql, sqlserver, "
            "msmq and sql-persistence, nor a store of your own as package.module:Class"
        )
    if error["type"] == "extra_forbidden":
        return unknown_setting(".".join(part for part in error["loc"] if isinstance(part, str)))
    if error["type"] == "missing":
        if error["loc"][0] == "route":
            return f"{path} is not set; give it in the configuration file"
        variable = "DUESWEEP_" + path.upper().replace(".", "__")
        return f"{path} is not set; give it in the configuration file or as {variable}"
    return f"{path} is wrong: {_reason(error)}"


def unknown_setting(path: str) -> str:
    """That there is no such setting, and what may have been meant."""
    known = _known_keys()
    near = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(
        path.rsplit(".", 1)[-1], [key.rsplit(".", 1)[-1] for key in known], n=1
    )
    return f"There is no setting {path}" + (f"; did you mean {near[0]}?" if near else "")


def _path(location: Sequence[str | int]) -> str:
    """A setting's name. Routes are counted as people do, from 1."""
    match location:
        case ["route", int() as index, *keys]:
            return f"{'.'.join(map(str, keys))} of [[route]] {index + 1}".removeprefix(" of ")
    # Where a setting has several forms, pydantic adds a description of each, in brackets.
    return ".".join(str(part) for part in location if "[" not in str(part))


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return _REASONS.get(error["type"]) or str(error["msg"]).lower()


def _known_keys() -> Sequence[str]:
    sections = {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if name not in {"queues", "route"}
    } | {"queues.default": QueueConfig, "route": RouteConfig}
    keys = [
        f"{section}.{field.alias or name}"
        for section, model in sections.items()
        for name, field in model.model_fields.items()  # type: ignore[union-attr]
    ]
    return [*sections, *(re.sub("^queues$", "queues.default", key) for key in keys)]
