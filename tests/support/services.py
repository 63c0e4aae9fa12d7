"""The services from scripts/services.py: the machine's own, else unpacked ones."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

UNPACKED = Path(__file__).parents[2] / ".cache" / "services"


def environment_of(service: str) -> Mapping[str, str]:
    """This process's variables, so that programs find the files unpacked with them."""
    folder = UNPACKED / service
    libraries = [*folder.glob("usr/lib/*-linux-*"), *folder.glob("lib/*-linux-*")]
    return {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:{folder / 'usr' / 'bin'}",
        "LD_LIBRARY_PATH": ":".join([*map(str, libraries), os.environ.get("LD_LIBRARY_PATH", "")]),
    }


def is_missing(what: str) -> NoReturn:
    """Skip the test, or fail it on CI, which has to have all services but SQL Server."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed, and CI has to have it")
    pytest.skip(f"{what} is not installed (docs/testing.md)")
