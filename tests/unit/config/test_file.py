"""The configuration file as bytes: encodings, ends of lines, files that cannot be read."""

from pathlib import Path

import pytest

from duesweep.config import load
from duesweep.core.errors import ConfigError
from support.config_files import MINIMAL


def _file(content: bytes) -> Path:
    path = Path("sales.toml").absolute()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_file_of_any_editor_is_read(encoding: str, end: str) -> None:
    text = MINIMAL.replace("Sales.Orders", "Söle.Orders").replace("\n", end)

    assert load(_file(text.encode(encoding))).store.endpoint == "Söle.Orders"


def test_file_that_may_not_be_read_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path), mode)

    file = _file(MINIMAL.encode())
    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(ConfigError, match=r"sales\.toml cannot be read: Permission denied"):
        load(file)
