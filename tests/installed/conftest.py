"""The wheel, built once."""

from pathlib import Path

import pytest

from support.commands import ROOT
from support.installed import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("dist"))
