"""Build build/environment-<hash>.tar.gz, a Python for executors, and print its URI.

An archive of links into this machine's Python would be of no use on another one: this one holds the
interpreter itself, its standard library and the packages that tasks import. Not PySpark, which the
cluster's own Spark brings. Workers need the C library of this machine, or a newer one.
"""

import hashlib
import platform
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PACKAGES = ("psycopg", "psycopg-binary", "pyarrow", "structlog", "typing-extensions")
IMPORTS = "psycopg, psycopg_binary, pyarrow, structlog, typing_extensions"
LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip"),
    *("site-packages", "dist-packages", "config-*", "sitecustomize.py"),
)
# What the extension modules of pyarrow are compiled from.
SOURCES = {".pxd", ".pxi", ".pyx"}
# The directory of libpython is burnt into the binary, as a path of this machine.
LAUNCHER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/python" "$@"
"""


def interpreter() -> Path:
    """The binary that .venv links to."""
    return Path(sys.executable).resolve()


def libpython() -> Path | None:
    """The shared library that this interpreter runs from; None where all is in the binary."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith("libpython"):
            return Path("/", path)
    return None


def copy_interpreter(home: Path) -> None:
    """Binary, shared library and standard library, in the layout that the binary looks for."""
    (home / "bin").mkdir(parents=True)
    library = libpython()
    if library is None:
        shutil.copy(interpreter(), home / "bin" / "python3")
    else:
        (home / "lib").mkdir()
        shutil.copy(library, home / "lib" / library.name)
        shutil.copy(interpreter(), home / "bin" / "python")
        (home / "bin" / "python3").write_text(LAUNCHER)
        (home / "bin" / "python3").chmod(0o755)
    for kind in ("stdlib", "platstdlib"):
        # From `base`: in a virtual environment platstdlib is the environment's own folder.
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        folder = Path(sysconfig.get_path(kind, vars=base))
        target = home / folder.relative_to(sys.base_prefix)
        shutil.copytree(folder, target, ignore=LEFT_OUT, dirs_exist_ok=True)


def copy_packages(home: Path) -> None:
    """The packages of executors, into the folder that the copied interpreter looks into."""
    # Debian's Python looks elsewhere than others do, and its `site` knows where.
    target = Path(site.getsitepackages([str(home)])[-1])
    for package in PACKAGES:
        for file in metadata.files(package) or ():
            parts = set(file.parts)
            if parts & {"..", "__pycache__", "tests", "include"} or file.suffix in SOURCES:
                continue
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target / file)


def check(home: Path) -> None:
    """Refuse an interpreter that does not run from where it was copied to."""
    code = f"import sys, {IMPORTS}; print(open('/proc/self/maps').read()); print(sys.prefix)"
    # -I: neither this machine's settings nor its working directory help it.
    command = [str(home / "bin" / "python3"), "-I", "-c", code]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    *maps, prefix = output.splitlines()
    libraries = {line[line.index("/") :] for line in maps if "libpython" in line}
    strangers = [path for path in (*libraries, prefix) if not Path(path).is_relative_to(home)]
    if strangers:
        sys.exit(
            f"{interpreter()} cannot be copied to executors: its copy still runs from "
            f"{', '.join(strangers)}. Make .venv from another Python: remove it and set PYTHON."
        )


def fingerprint() -> str:
    """Changes with whatever the archive is made from, this recipe included."""
    made_from = f"{interpreter()} {sys.version} {platform.machine()}".encode()
    files = (ROOT / "requirements.lock", Path(__file__))
    content = b"".join([made_from, *(file.read_bytes() for file in files)])
    return hashlib.sha256(content).hexdigest()[:12]


def main() -> int:
    """Build the archive unless it is there, and print its URI."""
    archive = BUILD / f"environment-{fingerprint()}.tar.gz"
    if not archive.exists():
        print("Building the environment archive for executors: once per lock.", file=sys.stderr)
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix="environment-") as folder:
            home = Path(folder).resolve() / "environment"
            copy_interpreter(home)
            copy_packages(home)
            check(home)
            unfinished = Path(folder) / archive.name
            # Level 1 takes a third of the time of level 6, and a tenth more room.
            with tarfile.open(unfinished, "w:gz", compresslevel=1) as tar:
                tar.add(home, ".", filter=without_caches)
            unfinished.replace(archive)
    # As a URI: Spark finds no archive under a path with a space in it.
    print(archive.as_uri())
    return 0


def without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what checking the interpreter has compiled."""
    return None if Path(member.name).name == "__pycache__" else member


if __name__ == "__main__":
    sys.exit(main())
