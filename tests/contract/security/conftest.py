"""Certificates, and a server that asks for passwords."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duesweep.demo.server import EmbeddedServer
from support.certificates import Authority
from support.password_server import password_server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def strict_server(open_folder: Path) -> Iterator[EmbeddedServer]:
    """A PostgreSQL server that asks all but its administrator for a password."""
    with password_server(open_folder) as server:
        yield server
