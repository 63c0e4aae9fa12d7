"""Whatever a configuration is, it is read, or refused with a sentence."""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from duesweep.config import Config, load
from duesweep.core.errors import ConfigError
from support.config_files import MINIMAL, file_of

pytestmark = pytest.mark.usefixtures("_elsewhere")

# Among them names of arguments that pydantic's settings have.
_KEYS = [key for name in Config.model_fields for key in (name, f"{name}s")] + [
    *("kind", "dsn", "url", "schema", "default", "options", "destination", "", "[", "\x1b"),
    *("_env_file", "self", "__pydantic_self__", "_cli_parse_args", "_secrets_dir"),
]
keys = st.sampled_from(_KEYS) | st.text(max_size=4)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=9)
    | st.sampled_from(["msmq", "rabbitmq", "sql-persistence", "a:B", "host=a", "Server=a", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
overrides = st.builds("{}={}".format, st.lists(keys, max_size=3).map(".".join), st.text(max_size=9))


@pytest.fixture(scope="module")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("bad_input"))
        yield


def _load(file: Path | None, *given: str) -> None:
    with suppress(ConfigError):
        load(file, given)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_configuration_or_refused(content: bytes) -> None:
    Path("any.toml").write_bytes(content)

    _load(Path("any.toml"))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(keys, values, max_size=4))
@example({"store": {"kind": [1]}})
@example({"route": [1]})
@example({"queues": [1]})
@example({"queues": {"": {}}})
def test_any_values_are_a_configuration_or_refused(content: Mapping[str, Any]) -> None:
    file, parsed = file_of(), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", lambda text: parsed.append(text) or content)
        _load(file)

    assert parsed[0] == MINIMAL


@given(st.lists(overrides, max_size=3))
@example(["_env_file=x"])
@example(["__pydantic_self__=1"])
@example(["_cli_parse_args=true"])
@example(["a." * 30_000 + "b=1"])
@example(["store.options." + "a." * 90 + "b=1"])
@example(["sweep.slices=" + "9" * 5_000])
@example(["store.endpoint=\udcff"])
def test_any_overrides_are_a_configuration_or_refused(given: list[str]) -> None:
    _load(file_of(), *given)


@pytest.mark.parametrize("path", ["n" * 5_000, "a\0b", "/dev/null", "sales.toml/x"])
def test_path_that_is_no_file_is_refused(path: str) -> None:
    file_of()

    with pytest.raises(ConfigError, match="give one with --config") as refusal:
        load(Path(path))

    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DUESWEEP_STORE", "[" * 100_000),
        ("DUESWEEP_STORE__OPTIONS", '{"a":' * 20_000),
        ("DUESWEEP_STORE__ENDPOINT", "\udcff"),
        ("DUESWEEP_SWEEP__SLICES", "9" * 5_000),
        ("DUESWEEP_QUEUES", "[1]"),
    ],
)
def test_variable_with_a_value_that_is_no_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigError):
        load(file_of(MINIMAL))


@pytest.mark.parametrize("dsn", ["z" * 9_999, "Server=x;" + "z" * 9_000, " " * 9_999 + "z"])
def test_long_dsn_is_read_in_one_pass(dsn: str) -> None:
    before = process_time()

    _load(file_of(), f"store.dsn={dsn}", "store.kind=sqlserver")

    # Milliseconds; several seconds where each of its characters begins another search.
    assert process_time() - before < 1
