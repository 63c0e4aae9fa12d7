"""Compares duesweep with its peers: bench/run [benchmark] [options]. See README.md.

Without a benchmark, all that need no server of others run in a size for ten minutes in all, one
after the other, and one table shows their results. Exits with 1 if a message was lost,
doubled or early, or a ratio is not enough, and with 2 if a server is missing.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import measure
from measure import ROOT, Figure

Options = Callable[[argparse.ArgumentParser], None]
Benchmark = Callable[[argparse.Namespace, Path], Sequence[Figure]]
NAMES = (
    *("throughput", "ticks", "start", "fleet", "watch", "audit", "maintain", "publisher"),
    *("sqlserver", "scale", "frozen"),
)
# They need a server of others, or hours.
_NOT_BY_DEFAULT = {"sqlserver", "scale", "frozen"}


def benchmark(name: str) -> tuple[Options, Benchmark]:
    """The options of a benchmark, and its function."""
    match name:
        case "throughput" | "scale":
            import throughput as module
        case "ticks" | "start" | "fleet" | "audit" | "maintain":
            import commands as module
        case "watch" | "frozen":
            import lateness as module
        case "publisher":
            import publisher as module
        case _:
            import sqlserver as module
    return getattr(module, f"{name}_options"), getattr(module, name)


def main(arguments: Sequence[str]) -> int:
    """Run one, or all."""
    if not arguments:
        return _run_all()
    if arguments[0] in {"-h", "--help"} or arguments[0] not in NAMES:
        print(__doc__)
        print(f"Benchmarks, each with --help: {', '.join(NAMES)}")
        return 0 if arguments[0] in {"-h", "--help"} else 2
    return _run(arguments[0], arguments[1:])


def _run_all() -> int:
    """Each in a process of its own: none inherits a JVM."""
    names = [name for name in NAMES if name not in _NOT_BY_DEFAULT]
    codes = {}
    for name in names:
        measure.say(f"== {name}")
        command = [sys.executable, str(Path(__file__)), name, "--no-table"]
        codes[name] = subprocess.run(command, check=False).returncode
    measure.show(names)
    not_run = [name for name, code in codes.items() if code == measure.NOT_RUN]
    failed = [name for name, code in codes.items() if code not in {0, measure.NOT_RUN}]
    if not_run:
        print(f"Not run, see above: {', '.join(not_run)}")
    if failed:
        print(f"Not as it should be: {', '.join(failed)}")
    return 1 if failed else 0


def parser_of(name: str) -> argparse.ArgumentParser:
    """The options of a benchmark."""
    add_options, run = benchmark(name)
    parser = argparse.ArgumentParser(prog=f"bench/run {name}", description=run.__doc__)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "bench", help="for the server's data"
    )
    parser.add_argument("--no-table", action="store_true", help=argparse.SUPPRESS)
    add_options(parser)
    return parser


def _run(name: str, arguments: Sequence[str]) -> int:
    options = parser_of(name).parse_args(arguments)
    _, run = benchmark(name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # An installed package has its bytecode. Without it each start compiles all of it: 0.9 s of CPU.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options.folder.mkdir(parents=True, exist_ok=True)
    parent = options.folder.absolute()
    with tempfile.TemporaryDirectory(dir=parent, prefix=f"{name}-") as folder:
        # The server of root runs under a user of its own, who must get in.
        os.chmod(folder, 0o755)  # noqa: PTH101
        figures = run(options, Path(folder))
    measure.write(name, figures)
    if not options.no_table:
        measure.show([name])
    return 0 if all(figure.is_good for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
