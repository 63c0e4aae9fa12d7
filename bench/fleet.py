"""Sixty endpoints with one command, and one after another; one of three databases is down."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from testbed import Load, Testbed

from duesweep.config import load
from duesweep.config.adapters.endpoint import store_of
from duesweep.operations.setup import set_up
from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
_DATABASES = ("one", "two", "down")
# Nothing listens there.
_DOWN = "postgresql://postgres@127.0.0.1:1/down"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both in turns. Returns 1 if a message is missing in a queue or in the ledger."""
    parser = argparse.ArgumentParser(prog="bench/run fleet", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=60)
    parser.add_argument("--most", type=int, default=20_000, help="due messages of the largest")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            figures = _run(options, folder)
        finally:
            clear_folder(folder)
    print(json.dumps(figures, indent=2))
    return 0 if figures["is_whole"] else 1


def _run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    # From 1 to `most`, each so many times as large as the one before.
    steps = options.endpoints - 1
    counts = [round(options.most ** (number / steps)) for number in range(options.endpoints)]
    with EmbeddedServer(folder, timezone="UTC") as server:
        fleet = _Fleet(server, folder, counts)
        together, apart = [], []
        for _ in range(options.rounds):
            fleet.fill()
            together.append(_timed(["--config", str(fleet.file)], {4}))
            is_whole = fleet.is_whole()
            fleet.fill()
            config = ["--config", str(fleet.file)]
            times = [_timed([*config, "--endpoint", each], {0, 4}) for each in fleet.names]
            apart.append(sum(times))
            is_whole = is_whole and fleet.is_whole()
        return {
            "endpoints": options.endpoints,
            "messages": sum(fleet.alive.values()),
            "seconds_together": together,
            "seconds_one_after_another": apart,
            "ratio": round(min(together) / min(apart), 3),
            "is_whole": is_whole,
        }


class _Fleet:
    """The endpoints, their tables, and their configuration."""

    def __init__(self, server: EmbeddedServer, folder: Path, counts: Sequence[int]) -> None:
        self._root = folder / "ledger"
        self._dsns = {name: server.dsn_of(name) for name in _DATABASES[:2]} | {"down": _DOWN}
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            for name in _DATABASES[:2]:
                admin.execute(f"CREATE DATABASE {name}".encode())
        self.names = [f"Endpoint{number}" for number in range(len(counts))]
        databases = [_DATABASES[number % 3] for number in range(len(counts))]
        self._database = dict(zip(self.names, databases, strict=True))
        due = dict(zip(self.names, counts, strict=True))
        self.alive = {name: due[name] for name in self.names if self._database[name] != "down"}
        self.file = folder / "fleet.toml"
        self.file.write_text("\n".join(self._lines()))
        self._swept = 0
        for name in _DATABASES[:2]:
            settings = {
                "store": {"kind": "postgresql", "dsn": self._dsns[name], "endpoint": ENDPOINT},
                "ledger": {"root": str(self._root)},
            }
            config = write_config(folder / f"{name}.toml", settings, "Written by bench/run.")
            Testbed(config, Load(max(counts))).prepare()
        for name in self.alive:
            set_up(load(Path(self.file), endpoint=name))

    def _lines(self) -> list[str]:
        lines = ["[defaults.store]", 'kind = "postgresql"', "[defaults.ledger]"]
        lines.append(f"root = {json.dumps(str(self._root))}")
        for name in self.names:
            dsn = json.dumps(self._dsns[self._database[name]])
            lines.append(f'[[endpoint]]\nstore = {{endpoint = "{name}", dsn = {dsn}}}')
        return lines

    def fill(self) -> None:
        """Store the messages that are due."""
        for name, count in self.alive.items():
            delayed = store_of(load(Path(self.file), endpoint=name)).delayed
            with psycopg.connect(self._dsns[self._database[name]]) as connection:
                connection.execute(
                    f"INSERT INTO {delayed} (headers, body, due) SELECT headers, body, due"
                    f" FROM bench_pristine WHERE is_due LIMIT {count}".encode()
                )
        self._swept += 1

    def is_whole(self) -> bool:
        """Whether nothing waits, and the ledger has as many tombstones as messages were stored."""
        from deltalake import DeltaTable  # noqa: PLC0415 - slow

        waiting = 0
        for name in self.alive:
            delayed = store_of(load(Path(self.file), endpoint=name)).delayed
            with psycopg.connect(self._dsns[self._database[name]]) as connection:
                row = connection.execute(f"SELECT count(*) FROM {delayed}".encode()).fetchone()
                waiting += int(row[0]) if row else 0
        told = DeltaTable(self._root / "tombstones").to_pyarrow_table(columns=["message_key"])
        return waiting == 0 and told.num_rows == self._swept * sum(self.alive.values())


def _timed(options: Sequence[str], codes: set[int]) -> float:
    command = [sys.executable, "-m", "duesweep", "sweep", *options]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"a sweep ended with {done.returncode}: {done.stderr[-2_000:]}")
    return round(time.monotonic() - begin, 2)


if __name__ == "__main__":
    sys.exit(main())
