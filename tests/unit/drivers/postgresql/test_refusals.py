"""Refusals of a session, by servers in any language and by poolers. A lasting one is a wrong
setting, with the right advice. All others are outages, whose advice names no password.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duesweep.core.errors import ConfigError, DuesweepError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect

LOGIN, ROLE, DATABASE = "correct user or password", "correct the user", "correct the database"
RULES, POOLER = "pg_hba.conf", "a pooler refuses this setting"
# SQLSTATE, text and advice. PostgreSQL's texts are from its catalogs of translations.
LASTING = [
    ("28P01", 'password authentication failed for user "app"', LOGIN),
    ("28P01", "Passwort-Authentifizierung für Benutzer »app« fehlgeschlagen", LOGIN),
    ("28P01", "authentification par mot de passe échouée pour l'utilisateur « app »", LOGIN),
    ("28P01", 'ユーザー"app"のパスワード認証に失敗しました', LOGIN),
    ("28000", 'role "app" does not exist', ROLE),
    ("28000", 'role "app" is not permitted to log in', ROLE),
    ("28000", "Rolle »app« existiert nicht", ROLE),
    ("28000", 'ロール"app"は存在しません', ROLE),
    ("28000", 'no pg_hba.conf entry for host "10.0.0.1", user "app", database "nsb"', RULES),
    ("28000", "kein pg_hba.conf-Eintrag für Host »10.0.0.1«, Benutzer »app«", RULES),
    ("28000", 'pg_hba.conf にホスト"10.0.0.1"用のエントリがありません', RULES),
    ("3D000", 'database "nsb" does not exist', DATABASE),
    ("3D000", "la base de données « nsb » n'existe pas", DATABASE),
    ("3D000", 'データベース"nsb"は存在しません', DATABASE),
    ("42501", "keine Berechtigung für Datenbank »nsb«", "GRANT CONNECT ON DATABASE"),
    ("42704", "unbekannter Konfigurationsparameter »foo«", "correct the options"),
    # PgBouncer 1.18 and 1.25
    ("08P01", "unsupported startup parameter: options", POOLER),
    (
        "08P01",
        "unsupported options startup parameter: only '-c config=val' and '--config=val' are "
        "allowed",
        POOLER,
    ),
    ("08P01", "password authentication failed", LOGIN),
    ("08P01", "no such database: nsb", DATABASE),
    ("3D000", "no such database: nsb", DATABASE),
    ("08P01", "no such user: app", ROLE),
    ("08P01", "SSL required", "sslmode=require"),
    (
        "08P01",
        "transaction blocks not allowed in statement pooling mode",
        "pool_mode = transaction",
    ),
    # pgpool, Azure, Supavisor
    ("28000", 'no pool_hba.conf entry for host "10.0.0.1", user "app", database "nsb"', RULES),
    ("28000", "SSL connection is required. Please specify SSL options and retry.", "sslmode="),
    ("XX000", "Tenant or user not found", ROLE),
]
PASSING = [
    ("53300", "sorry, too many clients already"),
    ("53300", "tut mir leid, schon zu viele Verbindungen"),
    ("53300", "désolé, trop de clients sont déjà connectés"),
    ("53300", "現在クライアント数が多すぎます"),
    ("53300", 'too many connections for role "app"'),
    ("53300", "zu viele Verbindungen von Rolle »app«"),
    ("53300", 'too many connections for database "nsb"'),
    ("53300", "les emplacements de connexions restants sont réservés"),
    (
        "53300",
        "remaining connection slots are reserved for roles with privileges of the "
        '"pg_use_reserved_connections" role',
    ),
    ("57P03", "the database system is starting up"),
    ("57P03", "das Datenbanksystem startet"),
    ("57P03", "le système de bases de données se lance"),
    ("57P03", "データベースシステムは起動処理中です"),
    ("57P01", "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators"),
    ("55000", 'database "nsb" is not currently accepting connections'),
    ("58P01", "konnte Datei »global/pg_filenode.map« nicht öffnen"),
    ("53100", "konnte nicht in Datei schreiben: Auf dem Gerät ist kein Speicherplatz"),
    ("99999", "nobody foresaw this"),
    # PgBouncer
    ("08P01", "no more connections allowed (max_client_conn)"),
    ("08P01", "query_wait_timeout"),
    ("08P01", "pgbouncer cannot connect to server"),
    ("08P01", "server login has been failing, try again later (server_login_retry)"),
    ("08P01", "the database system is shutting down"),
    ("08P01", "client_login_timeout"),
    ("53300", "no more connections allowed (max_db_client_connections)"),
    # pgpool
    ("53300", "Sorry, too many clients already"),
    ("57P03", "pgpool is not accepting any new connections"),
    ("XX000", "all backend nodes are down, pgpool requires at least one valid node"),
    ("XX000", "failed to create a backend connection"),
    ("08006", "unable to read data from DB node 0"),
    # Azure, Supavisor, Neon
    ("53300", "remaining connection slots are reserved for azure replication connections"),
    ("57P03", "The server is not ready to accept connections: it is being updated"),
    ("XX000", "MaxClientsInSessionMode: max clients reached"),
    ("XX000", "Unable to check out process from the pool due to timeout"),
]


@contextmanager
def _server(state: str, text: str) -> Iterator[str]:
    """Refuses each session; the dsn."""
    fields = [("S", "致命的エラー"), ("V", "FATAL"), ("C", state), ("M", text)]
    fields += [("F", "postmaster.c"), ("L", "2345"), ("R", "ProcessStartupPacket")]
    body = b"".join(kind.encode() + each.encode() + b"\0" for kind, each in fields) + b"\0"

    def refuse() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(10_000)
                client.sendall(b"E" + (len(body) + 4).to_bytes(4) + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield f"host=127.0.0.1 port={port} user=app dbname=nsb sslmode=disable gssencmode=disable"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _refused(state: str, text: str) -> DuesweepError:
    with _server(state, text) as dsn, pytest.raises((ConfigError, StoreError)) as caught:
        connect(dsn, DEFAULT_TIMEOUTS.task)
    error = caught.value
    assert f"{text} ({state})" in error.text
    # The place in the server's source is of no use here.
    assert "postmaster.c" not in error.text
    return error


@pytest.mark.parametrize(("state", "text", "advice"), LASTING)
def test_refusal_that_lasts_is_a_wrong_setting(state: str, text: str, advice: str) -> None:
    error = _refused(state, text)

    assert isinstance(error, ConfigError)
    assert error.advice is not None
    assert advice in error.advice


@pytest.mark.parametrize(("state", "text"), PASSING)
def test_every_other_refusal_is_an_outage(state: str, text: str) -> None:
    error = _refused(state, text)

    assert isinstance(error, StoreError)
    assert error.transient
    assert error.advice is not None
    assert "log of the server, or of a pooler" in error.advice
    assert not {"password", "user", "database"} & set(error.advice.split())


def test_user_of_the_system_without_a_name_is_told_to_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "connection failed: local user with ID 1000660000 does not exist"
    from duesweep.drivers.postgresql import session  # noqa: PLC0415 - a part of it is replaced

    def refused(*_: object, **__: object) -> None:
        raise session.psycopg.OperationalError(text)

    monkeypatch.setattr(session.BoundedConnection, "connect", refused)
    with pytest.raises(ConfigError, match="names no user") as caught:
        connect("host=127.0.0.1 dbname=nsb", DEFAULT_TIMEOUTS.task)

    assert "give a user in the dsn" in str(caught.value)
