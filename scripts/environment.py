"""Make a Python environment of this checkout: environment.py program|tests|site|audit.

scripts/environment.sh describes them, and calls this. Needs Python 3.11 and a package index alone:
Debian keeps pip in a package of its own, so pip is fetched first.
"""

import base64
import configparser
import fcntl
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
# The names of those packages of the lock that duesweep itself needs, with the extra `all`:
# scripts/renew_locks.py writes them.
PROGRAM = ROOT / "scripts" / "program.txt"
VENV = ROOT / ".venv"
# Its archive is no wheel, but 430 MB that pip makes one of. The others are installed at the same
# time.
_SPARK = "pyspark"
_INTERRUPTED = 130
PIP = "pip-26.3-py3-none-any.whl"
_PIP_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
_INDEX = "https://pypi.org/simple"
_SILENCE_SECONDS = 30.0
# Between two lines about the progress in a log.
_QUIET_SECONDS = 10.0
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
        except (OSError, ValueError) as error:
            print(f"{error}. Then run this again.", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError:
            print(
                "The packages could not be installed: see above. If the package index is out of "
                "reach, name another one with PIP_INDEX_URL or in pip.conf. Then run this again.",
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
        f"requirements.lock with {sys.executable}: once, a minute or more. The largest package is "
        "Spark, with 430 MB.",
        file=sys.stderr,
        flush=True,
    )
    if not has_program:
        _make_empty(VENV)
    of_program = set(PROGRAM.read_text(encoding="utf-8").split())
    wanted = {
        name: lines
        for name, lines in packages(LOCK.read_text(encoding="utf-8")).items()
        if (name not in of_program if has_program else with_tests or name in of_program)
    }
    with progress(VENV), ThreadPoolExecutor() as pool:
        lines = wanted.pop(_SPARK, None)
        spark = pool.submit(_install, VENV, [lines]) if lines is not None else None
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
        with progress(folder):
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
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    with tempfile.TemporaryDirectory() as fetched:
        wheel = Path(fetched, PIP)
        wheel.write_bytes(fetch_pip())
        pip = [str(folder / "bin" / "python"), str(wheel / "pip"), "install", "--quiet"]
        # The environment's Python, and no setting of another pip.
        subprocess.run([*pip, "--no-index", str(wheel)], check=True, stdout=sys.stderr)


def setting_of_pip(name: str) -> str | None:
    """A setting as pip itself will find it: of the environment, else of its files, the last of
    which counts. https://pip.pypa.io/en/stable/topics/configuration/
    """
    found = os.environ.get(f"PIP_{name.upper().replace('-', '_')}")
    named = os.environ.get("PIP_CONFIG_FILE", "")
    if found or named == os.devnull:
        return found or None
    config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    mine = (
        "~/Library/Application Support/pip/pip.conf",
        "~/.pip/pip.conf",
        config / "pip/pip.conf",
    )
    for file in ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", *mine, named):
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(file), encoding="utf-8")  # noqa: PTH111 - a user may have no home
        except (configparser.Error, ValueError) as error:
            raise ValueError(f"{file} cannot be read: {type(error).__name__}") from None
        for section in ("global", "install"):
            for key in (name, name.replace("-", "_")):
                found = parser.get(section, key, fallback=found)
    return found or None


def fetch_pip() -> bytes:
    """pip's wheel, from the index that pip itself would ask."""
    index = setting_of_pip("index-url") or _INDEX
    try:
        parts = urlsplit(f"{index.rstrip('/')}/pip/")
        user, _, server = parts.netloc.rpartition("@")
        # An unescaped / or # in a password ends the server's name: this port is no number.
        _ = parts.port
    except ValueError:
        raise ValueError(
            "PIP_INDEX_URL, or index-url in pip.conf, is no address: write / # ? and @ in its "
            "password as %2F %23 %3F and %40"
        ) from None
    page = parts._replace(netloc=server).geturl()
    try:
        links = re.findall(r"""href=["']([^"'#]+)""", _read(page, server, user).decode())
        link = next(each for each in links if each.rpartition("/")[2] == PIP)
        wheel = _read(urljoin(page, link), server, user)
    except (OSError, ValueError, HTTPException, StopIteration) as error:
        # Of an address that cannot be read, the error shows all, with a password.
        reason = f": {error}" if isinstance(error, OSError) else ""
        raise ValueError(
            f"{PIP} could not be fetched ({type(error).__name__}{reason}). If the package index is "
            "out of reach, name another one with PIP_INDEX_URL, or index-url in pip.conf; look at "
            "its settings proxy and cert too"
        ) from None
    if hashlib.sha256(wheel).hexdigest() != _PIP_SHA256:
        raise ValueError(f"The index has another {PIP}. Look at PIP_INDEX_URL and pip.conf")
    return wheel


def _read(address: str, server: str, user: str) -> bytes:
    """The answer of an address. `user`, with a password, is for this server: urllib would take it
    for a part of the server's name.
    """
    request = urllib.request.Request(address)
    if user and urlsplit(address).netloc == server:
        token = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    cert, proxy = setting_of_pip("cert"), setting_of_pip("proxy")
    authorities = None if cert is None else Path(cert).expanduser()
    # Else the variables of the environment say it.
    proxies = None if proxy is None else {"http": proxy, "https": proxy}
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPSHandler(context=_trusting(authorities)),
    )
    with opener.open(request, timeout=_SILENCE_SECONDS) as answer:
        content: bytes = answer.read()
    return content


def _trusting(authorities: Path | None) -> ssl.SSLContext:
    """These authorities, in a file or a folder, or the machine's."""
    if authorities is not None and authorities.is_dir():
        return ssl.create_default_context(capath=authorities)
    return ssl.create_default_context(cafile=authorities)


@contextmanager
def progress(folder: Path) -> Iterator[None]:
    """Say how much is there while packages are fetched and installed: on a terminal in one line,
    else every ten seconds. What pip has fetched and not installed is in the temporary folder.
    """
    is_over = threading.Event()
    is_terminal = sys.stderr.isatty()
    began = time.monotonic()

    def tell() -> None:
        while not is_over.wait(1.0 if is_terminal else _QUIET_SECONDS):
            size = sum(map(_size, (folder, Path(os.environ["TMPDIR"])))) / 1e6
            text = f"  {size:,.0f} MB, {time.monotonic() - began:.0f} s"
            print(text, end="\r" if is_terminal else "\n", file=sys.stderr, flush=True)

    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="duesweep-pip-") as fetched:
        os.environ["TMPDIR"] = fetched
        thread = threading.Thread(target=tell)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before
            print(end="\x1b[K" if is_terminal else "", file=sys.stderr, flush=True)


def _size(folder: Path) -> int:
    """The bytes of its files. Some come and go at the same time."""
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118 - of many files
            except OSError:
                continue
    return size


def _install(folder: Path, requirements: Iterable[str]) -> None:
    """Install packages of a lock, which names all that they depend on."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(requirements)
        file.flush()
        command = [str(folder / "bin" / "python"), "-m", "pip", "install"]
        command += [
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--no-compile",
            "--no-deps",
        ]
        # A wheel that is made here is not kept: packing it would only take time.
        command += ["--config-settings=--build-option=--compression=stored"]
        command += ["--require-hashes", "--requirement", file.name]
        subprocess.run(command, check=True, stdout=sys.stderr)


def _compile(folder: Path, *, besides: str = "tests") -> None:
    """Compile a folder's modules, while pip installs Spark: a user who may not write there would
    compile them at each start.
    """
    python = [str(VENV / "bin" / "python"), "-W", "ignore"]
    command = [*python, "-m", "compileall", "-qq", "-x", f"/{besides}/"]
    # A package may hold files that this Python cannot read.
    done = subprocess.run(
        [*command, "-j", "0", str(folder)], check=False, stderr=subprocess.PIPE, text=True
    )
    # It says nothing of such files. A machine without shared memory cannot have two workers.
    if done.stderr:
        subprocess.run([*command, str(folder)], check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
