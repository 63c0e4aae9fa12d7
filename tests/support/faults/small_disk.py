"""A small disk of the test's own, to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """Mounted at `folder`."""

    folder: Path

    def fill(self) -> None:
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        (self.folder / "filler").unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """A disk of 8 MB; skips where this user may not mount one, which on CI is a failure."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "duesweep-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"no disk can be mounted, and CI has to: {done.stderr}")
        pytest.skip(f"no disk can be mounted: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
