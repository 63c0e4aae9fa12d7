"""Make a Python environment of this checkout: environment.py program|tests|site|audit.

scripts/environment.sh describes them, and calls this. Needs Python 3.11 with venv alone.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
# The names of those packages of the lock that duesweep itself needs, with the extras `demo` and
# `otel`: scripts/renew_locks.py writes them.
PROGRAM = ROOT / "scripts" / "program.txt"
VENV = ROOT / ".venv"
# Its archive is no wheel, but 430 MB that pip makes one of. The others are installed at the same
# time.
_SPARK = "pyspark"
_INTERRUPTED = 130
_BLOCK = re.compile(r"^([\w.-]+)==.*(?:\n .*)*\n", re.MULTILINE)


def main(what: str) -> int:
    """Make it, unless another start has just made it. Returns 2 if this user may not."""
    held = ROOT / ".cache" / "lock"
    try:
        held.parent.mkdir(exist_ok=True)
        lock = held.open("a", encoding="utf-8")
    except OSError:
        print(
            f"{ROOT} is not ready, and this user may not write there: run "
            f"{ROOT}/spark-submit.sh doctor as its owner once, and let all users read the "
            "files it makes.",
            file=sys.stderr,
        )
        return 2
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if what in {"program", "tests"}:
                _make_own(with_tests=what == "tests")
            else:
                _make_tools(ROOT / "scripts" / f"{what}.lock", ROOT / ".cache" / what)
        except KeyboardInterrupt:
            print("Interrupted: the next start makes the unfinished parts again.", file=sys.stderr)
            return _INTERRUPTED
        except (OSError, subprocess.CalledProcessError) as error:
            told = f"{error}. " if isinstance(error, OSError) else ""
            print(
                f"{told}The packages could not be installed: see above, then run this again.",
                file=sys.stderr,
            )
            return 1
    return 0


def packages(lock: str) -> Mapping[str, str]:
    """The lines of each package in a lock, by its name."""
    found: dict[str, str] = defaultdict(str)
    for block in _BLOCK.finditer(lock):
        found[block[1]] += block[0]
    return found


def _make_own(*, with_tests: bool) -> None:
    if _is_made_from(LOCK, VENV / "requirements.lock"):
        return
    has_program = _is_made_from(LOCK, VENV / "program.lock")
    if has_program and not with_tests:
        return
    print(
        f"{'Adding what tests need to' if has_program else 'Setting up'} .venv from "
        f"requirements.lock with {sys.executable}: once, a minute or more.",
        file=sys.stderr,
    )
    if not has_program:
        _make_empty(VENV)
    of_program = set(PROGRAM.read_text(encoding="utf-8").split())
    wanted = {
        name: lines
        for name, lines in packages(LOCK.read_text(encoding="utf-8")).items()
        if (name not in of_program if has_program else with_tests or name in of_program)
    }
    with ThreadPoolExecutor() as pool:
        spark = pool.submit(_install, VENV, [wanted.pop(_SPARK)]) if _SPARK in wanted else None
        _install(VENV, wanted.values())
        (site,) = VENV.glob("lib/python3*/site-packages")
        _compile(site, besides=_SPARK)
        if spark is not None:
            spark.result()
            _compile(site / _SPARK)
    _compile(ROOT / "lib")
    # Relative, so that a checkout can move; read by `site` when Python starts.
    (site / "duesweep.pth").write_text("../../../../lib\n", encoding="utf-8")
    shutil.copy(LOCK, VENV / ("requirements.lock" if with_tests else "program.lock"))


def _make_tools(lock: Path, folder: Path) -> None:
    if not _is_made_from(lock, folder / "tools.lock"):
        _make_empty(folder)
        _install(folder, [lock.read_text(encoding="utf-8")])
        shutil.copy(lock, folder / "tools.lock")


def _is_made_from(lock: Path, copy: Path) -> bool:
    # The system's Python that it was made from may be gone.
    if not os.access(copy.parent / "bin" / "python", os.X_OK):
        return False
    try:
        mine, its = (file.read_text(encoding="utf-8").splitlines() for file in (lock, copy))
    except OSError:
        return False
    # A comment is no reason to make it again.
    return [line for line in mine if line[:1] != "#"] == [line for line in its if line[:1] != "#"]


def _make_empty(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)


def _install(folder: Path, requirements: Iterable[str]) -> None:
    """Install packages of a lock, which names all that they depend on."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(requirements)
        file.flush()
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        command += ["--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps"]
        # A wheel that is made here is not kept: packing it would only take time.
        command += ["--config-settings=--build-option=--compression=stored"]
        command += ["--require-hashes", "--requirement", file.name]
        # pip 23.0 (Debian 12) builds PySpark in an outdated way unless told not to.
        environment = os.environ | {"PIP_USE_PEP517": "1"}
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)


def _compile(folder: Path, *, besides: str = "tests") -> None:
    """Compile a folder's modules, while pip installs Spark: a user who may not write there would
    compile them at each start.
    """
    command = [str(VENV / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0"]
    # A package may hold files that this Python cannot read.
    subprocess.run([*command, "-x", f"/{besides}/", str(folder)], check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
