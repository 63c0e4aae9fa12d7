"""Build build/environment-<hash>.tar.gz, a Python for executors, and print its URI.

An archive of links into this machine's Python would be of no use on another one: this one holds the
interpreter itself, its standard library and the packages that tasks import, with the libraries that
these load from this machine. Not PySpark, which the cluster's own Spark brings. Workers need the C
library of this machine, or a newer one. Without unixODBC, of this machine or unpacked by
scripts/services.py, the archive is one without SQL Server.
"""

import hashlib
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
UNPACKED = ROOT / ".cache" / "services" / "odbc"
PACKAGES = (
    "msgspec",
    "pika",
    "psycopg",
    "psycopg-binary",
    "pyarrow",
    "structlog",
    "typing-extensions",
)
IMPORTS = "msgspec, pika, psycopg, psycopg_binary, pyarrow, structlog, typing_extensions"
SQLSERVER_PACKAGES = ("mssql-python-odbc", "pyodbc")
LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip"),
    *("site-packages", "dist-packages", "config-*", "sitecustomize.py"),
)
# The sources of pyarrow's extension modules.
SOURCES = {".pxd", ".pxi", ".pyx"}
# A worker has the C library and the compiler's; of OpenSSL it needs its own, which alone knows
# where it keeps the authorities that it trusts.
OF_WORKER = re.compile(r"ld-|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+|crypto|ssl)\.so")
_LINK = re.compile(r"^\s+(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", re.MULTILINE)
# No server listens there; if the driver cannot be loaded, the state is another one.
CONNECT = """
import mssql_python_odbc, pyodbc
try:
    pyodbc.connect("Driver={" + sys.argv[1] + "};Server=127.0.0.1,1", timeout=1)
except pyodbc.Error as error:
    if error.args[0] not in ("08001", "HYT00"):
        raise
"""
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
    """The shared library that this interpreter runs from; None if the binary has everything."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith("libpython"):
            return Path("/", path)
    return None


def sqlserver_driver() -> metadata.PackagePath:
    """Microsoft's driver: the wheel holds one for each of some distributions."""
    files = metadata.files("mssql-python-odbc") or ()
    return min(file for file in files if file.name.startswith("libmsodbcsql"))


def sqlserver_libraries() -> dict[str, str]:
    """The libraries that pyodbc and the driver load from this machine: path by name, or "not
    found". Missing ones may be unpacked.
    """
    extension = find_spec("pyodbc")
    if extension is None or extension.origin is None:
        sys.exit(".venv has no pyodbc: remove .venv, and the next start makes it again.")
    files = extension.origin, str(sqlserver_driver().locate())
    found = linked(files)
    if "not found" in found.values():
        folders = (*UNPACKED.glob("usr/lib/*-linux-*"), *UNPACKED.glob("lib/*-linux-*"))
        found = linked(files, folders)
    # Libraries of a package are copied with it, and found where they are.
    return {
        name: path
        for name, path in found.items()
        if not OF_WORKER.match(name) and not in_venv(path)
    }


def linked(files: Iterable[str], folders: Iterable[Path] = ()) -> dict[str, str]:
    """Path by name of the libraries that `files` link to, or "not found"; looked for in `folders`
    as well.
    """
    path = ":".join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")])
    output = subprocess.run(
        ["ldd", *files],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"LC_ALL": "C", "LD_LIBRARY_PATH": path},
    ).stdout
    return dict(_LINK.findall(output))


def in_venv(path: str) -> bool:
    """Whether a file belongs to an installed package."""
    return Path(path).resolve().is_relative_to(Path(sys.prefix).resolve())


def copy_interpreter(home: Path) -> None:
    """Binary, shared library and standard library, in the layout that the binary looks for."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    library = libpython()
    if library is not None:
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


def copy_packages(home: Path, packages: Iterable[str]) -> None:
    """The packages of executors, into the folder that the copied interpreter looks into."""
    for package in packages:
        for file in metadata.files(package) or ():
            parts = set(file.parts)
            if parts & {"..", "__pycache__", "tests", "include"} or file.suffix in SOURCES:
                continue
            if is_for_others(file):
                continue
            target = site_packages(home) / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def site_packages(home: Path) -> Path:
    """Debian's Python looks elsewhere than others do, and its `site` knows where."""
    return Path(site.getsitepackages([str(home)])[-1])


def is_for_others(file: metadata.PackagePath) -> bool:
    """Whether a file belongs to a driver for another distribution."""
    libraries = "mssql_python_odbc", "libs", "linux"
    ours = sqlserver_driver().parts
    return file.parts[:3] == libraries and file.parts[:4] != ours[:4]


def copy_libraries(home: Path, libraries: Mapping[str, str]) -> None:
    """Shared libraries, under the names that they are asked for by."""
    for name, path in libraries.items():
        shutil.copy(path, home / "lib" / name)


def check(home: Path, *, sqlserver: bool) -> None:
    """Refuse an interpreter that does not run from where it was copied to."""
    code = f"import sys, {IMPORTS}\n{CONNECT if sqlserver else ''}"
    code += "print(open('/proc/self/maps').read()); print(sys.prefix)"
    driver = site_packages(home) / sqlserver_driver()
    # -I: neither this machine's settings nor its working directory help it.
    command = [str(home / "bin" / "python3"), "-I", "-c", code, str(driver)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    *maps, prefix = output.splitlines()
    copied = {file.name for file in home.rglob("*.so*")}
    libraries = {Path(line[line.index("/") :]) for line in maps if ".so" in line}
    ours = [path for path in libraries if path.name in copied]
    strangers = [str(path) for path in (*ours, Path(prefix)) if not path.is_relative_to(home)]
    if strangers:
        sys.exit(
            f"{interpreter()} cannot be copied to executors: its copy still runs from "
            f"{', '.join(strangers)}. Make .venv from another Python: remove it and set PYTHON."
        )


def fingerprint(libraries: Mapping[str, str]) -> str:
    """Changes with whatever the archive is made from, this recipe included."""
    made_from = f"{interpreter()} {sys.version} {platform.machine()} {libraries}".encode()
    files = (ROOT / "requirements.lock", Path(__file__))
    content = b"".join([made_from, *(file.read_bytes() for file in files)])
    return hashlib.sha256(content).hexdigest()[:12]


def main() -> int:
    """Build the archive unless it is there, and print its URI."""
    libraries = sqlserver_libraries()
    archive = BUILD / f"environment-{fingerprint(libraries)}.tar.gz"
    if not archive.exists():
        print("Building the environment archive for executors: once per lock.", file=sys.stderr)
        try:
            build(archive, libraries)
        except PermissionError as error:
            print(
                f"The archive for executors could not be written: {error}. Run doctor once, with "
                f"the same --master, as the owner of {ROOT}.",
                file=sys.stderr,
            )
            return 2
    # As a URI: Spark finds no archive under a path with a space in it.
    print(archive.as_uri())
    return 0


def build(archive: Path, libraries: Mapping[str, str]) -> None:
    """Write the archive, in one move."""
    missing = [name for name, path in libraries.items() if path == "not found"]
    if missing:
        print(
            f"Executors will not reach SQL Server: this machine lacks {', '.join(missing)} "
            "(Debian, Ubuntu: apt-get install libodbc2 libgssapi-krb5-2; without root: "
            "scripts/services.py odbc).",
            file=sys.stderr,
        )
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="environment-") as folder:
        home = Path(folder).resolve() / "environment"
        copy_interpreter(home)
        copy_packages(home, PACKAGES if missing else (*PACKAGES, *SQLSERVER_PACKAGES))
        copy_libraries(home, {} if missing else libraries)
        check(home, sqlserver=not missing)
        unfinished = Path(folder) / archive.name
        # Level 1 takes a third of the time of level 6, and a tenth more room.
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as tar:
            tar.add(home, ".", filter=without_caches)
        unfinished.replace(archive)


def without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what checking the interpreter has compiled."""
    return None if Path(member.name).name == "__pycache__" else member


if __name__ == "__main__":
    sys.exit(main())
