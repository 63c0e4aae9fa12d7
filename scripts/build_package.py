"""Build build/duesweep.zip, the package for executors: the same bytes for the same sources."""

import io
import marshal  # noqa: TID251 - it writes byte code, and reads none
import os
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "lib"
# As in a wheel: the commands of a driver on a cluster are in both.
PACKAGES = ("duesweep", "duesweep_transport")
ARCHIVE = ROOT / "build" / "duesweep.zip"
SUFFIXES = {".py", ".sql", ".toml"}


def package() -> bytes:
    """The archive's content."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(file for name in PACKAGES for file in (LIB / name).rglob("*")):
            if file.suffix in SUFFIXES:
                # A ZipInfo of its own has a fixed date; stored, not packed, it imports faster.
                name = file.relative_to(LIB).as_posix()
                archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
            if file.suffix == ".py":
                # Each worker would compile the sources. Another version of Python ignores these.
                archive.writestr(zipfile.ZipInfo(f"{name}c"), _compiled(file, name))
    return content.getvalue()


def _compiled(file: Path, name: str) -> bytes:
    """The module as bytecode that is never compared with its source."""
    code = compile(file.read_bytes(), f"duesweep.zip/{name}", "exec", dont_inherit=True)
    unchecked = (0b01).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(file.read_bytes()) + marshal.dumps(code)


def main() -> int:
    """Replace a changed archive in one move: another start never reads half of one."""
    content = package()
    if ARCHIVE.exists() and ARCHIVE.read_bytes() == content:
        return 0
    unfinished = ARCHIVE.with_suffix(f".{os.getpid()}")
    try:
        ARCHIVE.parent.mkdir(exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(ARCHIVE)
    except OSError as error:
        print(
            f"The package archive could not be written: {error}. Run this once as the owner of "
            f"{ROOT}.",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
