"""Another user of the machine gets neither into the demonstration's server nor at its files."""

import os
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.world import Patience
from duesweep.drivers.process import open_lock
from duesweep.ledger.base import lock_for_writing
from duesweep.operations.demo.folder import lock_folder
from duesweep.operations.demo.server import EmbeddedServer
from support.commands import run_python

DSN = "postgresql://postgres@127.0.0.1:{}/postgres"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_server_asks_for_a_password_that_only_its_user_reads(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As another user, who has no password file.
    monkeypatch.setenv("PGPASSFILE", str(open_folder / "absent"))
    with EmbeddedServer(open_folder) as server:
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(DSN.format(server.port))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(DSN.format(server.port), password="postgres")
        with psycopg.connect(server.dsn) as admin:
            (address,) = admin.execute("SELECT host(inet_server_addr())").fetchone() or ()
            rules = admin.execute(
                "SELECT DISTINCT auth_method FROM pg_hba_file_rules WHERE type <> 'local'"
            ).fetchall()
        assert server.sockets is not None
        (file,) = parse_qs(urlsplit(server.dsn).query)["passfile"]

        assert (address, rules) == ("127.0.0.1", [("scram-sha-256",)])
        assert (_mode(Path(file)), _mode(server.sockets)) == (0o600, 0o700)
        password = Path(file).read_text("utf-8").strip().rpartition(":")[2]
        assert len(password) >= 24
        assert password not in server.dsn
        server.restart()
        with psycopg.connect(server.dsn):
            pass


def test_link_of_another_user_leads_no_lock_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", "utf-8")
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in (".duesweep.lock", ".duesweep-demo", "lock", f"duesweep-pg-{_user()}.lock"):
        (folder / name).symlink_to(victim)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    with pytest.raises(OSError, match="symbolic links"):
        open_lock(folder / "lock")
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        lock_for_writing(str(folder), Patience(1)),
    ):
        pytest.fail("locked")
    with pytest.raises(ConfigError, match="cannot write into"), lock_folder(folder):
        pytest.fail("locked")
    with pytest.raises(ConfigError, match="TMPDIR"), EmbeddedServer(tmp_path / "demo"):
        pytest.fail("started")

    assert victim.read_text("utf-8") == "precious"


def _user() -> int:
    return os.getuid()


def test_server_of_an_earlier_version_is_refused(open_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dsn = DSN.format(probe.getsockname()[1])
    (open_folder / "duesweep.toml").write_text(
        f'[store]\nendpoint = "Sales"\ndsn = "{dsn}"\n[ledger]\nroot = "/l"\n', "utf-8"
    )

    done = run_python("-m", "duesweep.operations.demo.server", open_folder)

    assert done.code == 2
    assert "Run `duesweep demo` again" in done.err
