"""The settings of several endpoints in files and folders."""

from contextlib import suppress
from pathlib import Path

import pytest

from duesweep.config import load, settings_of
from duesweep.config.files import EndpointSettings, merged
from duesweep.core.errors import ConfigError

_FLEET = """
[defaults.store]
kind = "postgresql"
dsn = "postgresql://sales"
[defaults.ledger]
root = "/tmp/ledger"
[[endpoint]]
store.endpoint = "Sales"
[[endpoint]]
store.endpoint = "Billing"
store.dsn = "postgresql://billing"
"""


def _file(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_endpoints_of_a_file_share_its_defaults_and_may_have_their_own(tmp_path: Path) -> None:
    found = settings_of([_file(tmp_path, "fleet.toml", _FLEET)])

    configs = [load(each) for each in found]
    assert [config.store.endpoint for config in configs] == ["Sales", "Billing"]
    dsns = [config.store.dsn.get_secret_value() for config in configs]
    assert dsns == ["postgresql://sales", "postgresql://billing"]
    assert {config.ledger.root for config in configs} == {"/tmp/ledger"}


def test_wrong_setting_of_an_endpoint_is_found_by_its_line(tmp_path: Path) -> None:
    """Before and after values of many lines. A text has a line like a setting's."""
    tried = '[[endpoint]]\nretry = {max_attempts = 0}\nstore.delayed_table = """\n[x]\ny = 1"""\n'
    many = '  "*",\n' * 40
    lists = f"sweep.allow_destinations = [\n{many}]\nstore.endpoint = 'Tried'\n"
    mails = '[[endpoint]]\nstore.endpoint = "Mails"\n[endpoint.sweep]\nslices = -1\n'
    file = _file(tmp_path, "fleet.toml", _FLEET + tried + lists + mails)

    told = []
    for each in settings_of([file])[2:]:
        with pytest.raises(ConfigError) as refusal:
            load(each)
        told.append(str(refusal.value).removeprefix(str(tmp_path)).partition(" is wrong")[0])

    assert told == ["/fleet.toml:13: retry.max_attempts", "/fleet.toml:63: sweep.slices"]


def test_endpoint_of_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, "fleet.toml", _FLEET)

    assert load(file, endpoint="Billing").store.endpoint == "Billing"
    assert [load(each).store.endpoint for each in settings_of([file], "Sales")] == ["Sales"]
    with pytest.raises(ConfigError, match=r"endpoint Nobody; name one of .*: Billing, Sales"):
        load(file, endpoint="Nobody")
    with pytest.raises(ConfigError, match="settings of 2 endpoints, and one is needed"):
        load(file)
    file.rename(tmp_path / "duesweep.toml")
    monkeypatch.chdir(tmp_path)
    assert load(None, endpoint="Billing").store.endpoint == "Billing"


def test_endpoint_that_is_named_is_not_another_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _file(tmp_path, "fleet.toml", _FLEET)
    monkeypatch.setenv("duesweep_store__endpoint", "Sales")

    for name in ("Billing", "Sales", "Nobody"):
        with pytest.raises(ConfigError, match="duesweep_store__endpoint in the environment is in"):
            settings_of([file], name)
    assert load(settings_of([file])[1]).store.endpoint == "Sales"


def test_endpoint_that_is_named_may_be_in_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    _file(tmp_path, "a.toml", _FLEET)
    _file(tmp_path, "b.toml", 'store.endpoint = "Shipping')

    with pytest.raises(ConfigError, match=r"endpoint Shipping; name .*b\.toml is not valid TOML"):
        settings_of([tmp_path], "Shipping")
    assert [load(each).store.endpoint for each in settings_of([tmp_path], "Sales")] == ["Sales"]


def test_folder_has_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    settings = 'dsn = "postgresql://x"}\nledger.root = "/l"'
    _file(tmp_path, "b.toml", f'store = {{endpoint = "B", {settings}')
    _file(tmp_path, "a.toml", f'store = {{endpoint = "A", {settings}')
    _file(tmp_path, "notes.txt", "not TOML")

    assert [load(each).store.endpoint for each in settings_of([tmp_path])] == ["A", "B"]


def test_file_of_a_folder_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    _file(tmp_path, "a.toml", "not TOML")
    _file(tmp_path, "b.toml", _FLEET)

    broken, *others = settings_of([tmp_path])

    assert len(others) == 2
    with pytest.raises(ConfigError, match=r"a\.toml is not valid TOML"):
        load(broken)


def test_one_of_several_files_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    good, bad = _file(tmp_path, "a.toml", _FLEET), _file(tmp_path, "b.toml", "not TOML")

    found = list[EndpointSettings]()
    with suppress(ConfigError):
        found = settings_of([good, bad])

    assert len(found) == 3
    broken = found[-1]
    with pytest.raises(ConfigError, match=r"b\.toml is not valid TOML"):
        load(broken)
    with pytest.raises(ConfigError, match=r"b\.toml is not valid TOML"):
        settings_of([bad])
    with pytest.raises(ConfigError, match="There is no configuration file"):
        settings_of([good, tmp_path / "c.toml"])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[[endpoint]]\nstore.endpoint = "A"\n[retry]\nmax_attempts = 3', "outside of it, retry"),
        ('[endpoint]\nstore.endpoint = "A"', "has one .endpoint."),
        ("endpoint = [1]", "is not a table"),
        ("defaults = 1", "is not a table"),
    ],
)
def test_file_of_a_wrong_shape_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        settings_of([_file(tmp_path, "fleet.toml", text)])


def test_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no configuration"):
        settings_of([tmp_path])


def test_tables_are_merged_and_values_and_lists_replaced() -> None:
    below = {"a": {"x": 1, "y": [1, 2]}, "b": 1}

    assert merged(below, {"a": {"y": [3]}, "b": {"z": 1}}) == {
        "a": {"x": 1, "y": [3]},
        "b": {"z": 1},
    }
