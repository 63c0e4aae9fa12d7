"""Connection texts of every grammar: used where the translation is sure, otherwise refused without
a part of their text.
"""

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.errors import ConfigError
from duesweep.drivers.dsn import DsnError, begin_at
from duesweep.drivers.postgresql.dsn import for_libpq
from duesweep.drivers.postgresql.errors import connect_errors
from duesweep.drivers.postgresql.session import database_of
from duesweep.drivers.servers import dialect_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.urls import check_http, for_pika

MARK = "n33dle"
WANTED = {"host": "db1", "port": "5433", "dbname": "nsb", "user": "app", "password": f"a;{MARK}"}
LONG = "a" * 64
ALIASES = {
    "host": ("Host", "Server", "HOST", "server"),
    "port": ("Port", "port"),
    "dbname": ("Database", "DB", "database"),
    "user": ("Username", "User Name", "User Id", "UserId", "UID", "username"),
    "password": ("Password", "PSW", "pwd"),
}


@given(st.permutations(sorted(WANTED)), st.data())
def test_npgsqls_keywords_are_read_in_any_order_case_and_alias(
    order: list[str], data: st.DataObject
) -> None:
    written = {
        data.draw(st.sampled_from(ALIASES[name])): (
            data.draw(st.sampled_from(['"{}"', "'{}'"])).format(WANTED[name])
            if name == "password"
            else WANTED[name]
        )
        for name in order
    }
    unused = "Pooling=true;Maximum Pool Size=20;MinPoolSize = 1;Include Error Detail=true;"

    text = unused + ";".join(f"{keyword}={value}" for keyword, value in written.items())

    assert conninfo_to_dict(for_libpq(text)) == WANTED
    assert dialect_of(text) == "postgresql"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Host=db1", {"host": "db1", "port": "5432"}),
        ("Host=db1:5433,db2;Port=7", {"host": "db1,db2", "port": "5433,7"}),
        ("Host=[::1]:5433", {"host": "::1", "port": "5433"}),
        ("Host=::1", {"host": "::1", "port": "5432"}),
        ("Host=/run/postgresql", {"host": "/run/postgresql", "port": "5432"}),
        ("Host=h;SSL Mode=VerifyFull", {"host": "h", "port": "5432", "sslmode": "verify-full"}),
        ("Host=h;SslMode=require", {"host": "h", "port": "5432", "sslmode": "require"}),
        (
            "Host=h;Root Certificate=/a b.pem;Channel Binding=Require",
            {
                "host": "h",
                "port": "5432",
                "sslrootcert": "/a b.pem",
                "channel_binding": "require",
            },
        ),
        ('Host=h;Password="a""b\\c\'d"', {"host": "h", "port": "5432", "password": "a\"b\\c'd"}),
        ("Host=h;Include Realm=false", {"host": "h", "port": "5432"}),
    ],
)
def test_npgsqls_options_have_libpqs_meaning(text: str, wanted: dict[str, str]) -> None:
    assert conninfo_to_dict(for_libpq(text)) == wanted


@pytest.mark.parametrize(
    "dsn",
    [
        *("postgresql:///nsb", "postgresql://u:a;b=c@db1/nsb", "postgresql://u@[::1]:5432/nsb"),
        *("postgresql://%2Frun%2Fpg/nsb?sslmode=require", "postgresql://u@db1/with%20space"),
        *("service=nsb", "host=/run/pg dbname=nsb", "host=db1 password=a;b dbname=nsb"),
        *("password='a;host=b' host=db1", "host = db1 user = 'o\\'neill'", "host=db1,db2"),
        *("postgresql://a%3Bb%3D@db1/c%3D%20d", "user='a;b=' dbname='c = d' host=db1"),
        *("host=db1 options='-c geqo=off'", "host=db1 application_name='a = b'", "host=bücher"),
    ],
)
def test_dsn_of_libpq_stays_as_it_is(dsn: str) -> None:
    assert for_libpq(dsn) == dsn


REFUSED = {
    f"host=db1 user=app;password={MARK} dbname=nsb": "its host holds ; or =",
    f"host=db1 dbname=nsb;password={MARK}": "its host holds ; or =",
    f"host=db1 sslmode=require;password={MARK}": "its host holds ; or =",
    f"host=db1,password={MARK},user=app": "its host holds ; or =",
    f"host=db1&password={MARK}": "its host holds ; or =",
    f"user=app;password={MARK}": "its user holds ; or =",
    f"postgresql://db1;password={MARK}/nsb": "its host holds ; or =",
    f"postgresql://u@db1/nsb;password={MARK}": "its database holds ; or =",
    f"postgresql://u@db1/nsb password={MARK}": "white space",
    f"postgresql://u@db1/nsb%3Bpassword%3D{MARK}": "its database holds ; or =",
    f"postgresql://db1?password={MARK}@db1/nsb": "its user holds ; or =",
    f"postgresql://db1/nsb?sslmode=require;password={MARK}": "it cannot be read",
    f"postgresql://db1/nsb?{MARK}=a;b": "it cannot be read",
    f"password=a {MARK}=b;c host=h": "it cannot be read",
    f"postgresql://db1/nsb?sslmode=require;{MARK}": "an option of it holds ; or =",
    f"postgresql://u:a@{MARK}@db1/nsb": "it cannot be read",
    f"postgresql://u:a/{MARK}@db1/nsb": "it cannot be read",
    f"jdbc:postgresql://db1/nsb?user=app&password={MARK}": "it is neither",
    f"mysql://app:{MARK}@db1/nsb": "it is neither",
    f"amqp://app:{MARK}@db1/": "it is neither",
    f'{{"host": "db1", "password": "{MARK}"}}': "it is neither",
    f"Host=db1;Password=a;{MARK}=b": "its option 3 is unknown",
    f"Host=db1;Password={MARK};Timezone=Europe/Berlin": "its option Timezone cannot be used",
    f"Host=db1;Password={MARK};Search Path=sales": "its option Search Path cannot be used",
    f"Host=db1;Password={MARK};SSL Mode=Always": "its SSL Mode is none of disable, allow",
    f"Host=db1;Password={MARK};SSL Certificate=/c.pfx": "an SSL Certificate without an SSL Key",
    f"Host=db1:a;Password={MARK}": "its port is not a number",
    f"Host=db 1;Password={MARK}": "its host holds ; or = or white space",
    f"postgresql://u:{MARK}@db..example/nsb": "its host has an empty part",
    f"postgresql://u:{MARK}@{LONG}/nsb": "its host is longer than",
    f"host={'a.' * 127}a password={MARK}": "its host is longer than",
    f"host='db 1' password={MARK}": "white space",
    f"host=db1$ password={MARK}": "a character that no host's name has",
}


@pytest.mark.parametrize(("dsn", "told"), REFUSED.items())
def test_dsn_that_libpq_would_misread_is_refused_without_its_text(dsn: str, told: str) -> None:
    with pytest.raises(DsnError) as refused:
        for_libpq(dsn)

    assert told in str(refused.value)
    assert MARK not in str(refused.value)


@pytest.mark.parametrize("dsn", REFUSED)
def test_connection_of_a_custom_store_refuses_it_too(dsn: str) -> None:
    with pytest.raises(ConfigError, match=r"^The dsn is wrong: ") as refused, connect_errors(dsn):
        pytest.fail("not connected")

    assert MARK not in str(refused.value)


@pytest.mark.parametrize("variable", ["PGHOST", "PGUSER", "PGDATABASE"])
def test_variable_that_libpq_would_misread_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"x;password={MARK}")

    with pytest.raises(ConfigError) as refused, connect_errors("sslmode=disable"):
        pytest.fail("not connected")

    assert str(refused.value) == f"{variable} in the environment is wrong; correct it"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host=mq1", "amqp://guest:guest@mq1:5672/%2F"),
        ("host=mq1:5673;port=1", "amqp://guest:guest@mq1:5673/%2F"),
        ("HOST=mq1;UseTls=true", "amqps://guest:guest@mq1:5671/%2F"),
        (
            "virtualHost=a/b;username=u;host=mq1;password=p@s/s;port=7;requestedHeartbeat=3;"
            "retryDelay=00:00:10",
            "amqp://u:p%40s%2Fs@mq1:7/a%2Fb?heartbeat=3",
        ),
        ('host=mq1;password="a;b"', "amqp://guest:a%3Bb@mq1:5672/%2F"),
        (" AMQPS://u:p@mq1/v", "amqps://u:p@mq1/v"),
    ],
)
def test_connection_string_of_nservicebus_becomes_an_amqp_url(text: str, url: str) -> None:
    assert for_pika(text) == url
    assert for_pika(url) == url


@pytest.mark.parametrize("vhost", ["a/b/c", "a/b", "/a"])
def test_vhost_with_a_slash_is_refused(vhost: str) -> None:
    with pytest.raises(DsnError, match="its vhost holds a slash"):
        for_pika(f"amqp://u:p@mq1/{vhost}")


@pytest.mark.parametrize("vhost", ["", "/", "a", "a/", "a%2Fb"])
def test_vhost_without_a_slash_is_taken(vhost: str) -> None:
    assert for_pika(f"amqp://u:p@mq1/{vhost}").endswith(f"/{vhost}")


@given(st.text(min_size=1).filter(lambda text: not set(text) & set("\"'")))
def test_any_password_of_nservicebus_is_the_urls(password: str) -> None:
    url = urlsplit(for_pika(f'username=u;password="{password}";host=h'))

    assert unquote(url.password or "") == password


@pytest.mark.parametrize(
    "url",
    [
        f"http://h/;password={MARK}",
        f"http://h;password={MARK}",
        f"http://h/?key={MARK}",
        f"http://h/#{MARK}",
        f"http://h/a@{MARK}",
        f"ftp://u:{MARK}@h",
        f"http://u:{MARK}@a..b",
        f"http://{LONG}",
        "http://h:x",
    ],
)
def test_url_of_a_service_has_no_options(url: str) -> None:
    with pytest.raises(DsnError) as refused:
        check_http(url)

    assert MARK not in str(refused.value)


ADO = {
    "Data Source=db1,1433;Initial Catalog=Sales Orders;User ID=app;Password='a;b'": {
        **{"server": "db1,1433", "database": "Sales Orders"},
        **{"uid": "app", "pwd": "a;b"},
    },
    "server=tcp:db1;database=nsb;Integrated Security=SSPI;Encrypt=True;Pooling=false": {
        **{"server": "tcp:db1", "database": "nsb"},
        **{"trusted_connection": "yes", "encrypt": "yes"},
    },
    "Server=.\\sql;Database=nsb;User Id=u;Password=p;TrustServerCertificate=true;"
    "MultipleActiveResultSets=True;Connect Timeout=5;Application Name=x": {
        **{"server": ".\\sql", "database": "nsb", "uid": "u", "pwd": "p"},
        "trustservercertificate": "yes",
    },
    "Server=h;Database=d;User Id=u;Authentication=Active Directory Password;Password=p": {
        **{"server": "h", "database": "d", "uid": "u", "pwd": "p"},
        "authentication": "ActiveDirectoryPassword",
    },
}


@pytest.mark.parametrize(("text", "pairs"), ADO.items())
def test_connection_string_of_sql_client_becomes_odbcs(text: str, pairs: dict[str, str]) -> None:
    assert OdbcDsn.parse(text).pairs == pairs
    assert dialect_of(text) == "sqlserver"


@pytest.mark.parametrize(
    ("dsn", "wanted"),
    [
        (
            "postgresql://u@db/nsb?sslrootcert=ca%20.pem&sslmode=verify-full&passfile=../p",
            "postgresql://u@db/nsb?sslrootcert=/it%27s%20here/ca%20.pem&sslmode=verify-full"
            "&passfile=/it%27s%20here/../p",
        ),
        ("host=db sslcert='a b' sslkey=k", r"host=db sslcert='{0}/a b' sslkey={0}/k"),
        ("Host=db;UID=u;Root Certificate=a;", "Host=db;UID=u;Root Certificate=/it's here/a;"),
        (
            'Host=db;UID=u;Root Certificate="ca.pem";Password=x{y',
            'Host=db;UID=u;Root Certificate="/it\'s here/ca.pem";Password=x{y',
        ),
        ('Host=db;UID=u;Passfile="my pass"', 'Host=db;UID=u;Passfile="/it\'s here/my pass"'),
        (
            "Driver={ODBC Driver 18 for SQL Server};Server=db;ServerCertificate={a.pem}",
            "Driver={ODBC Driver 18 for SQL Server};Server=db;ServerCertificate={/it's here/a.pem}",
        ),
        ("Data Source=db;Server Certificate=a", "Data Source=db;Server Certificate=/it's here/a"),
    ],
)
def test_relative_paths_in_a_dsn_begin_at_a_folder(dsn: str, wanted: str) -> None:
    assert begin_at("/it's here", dsn) == wanted.replace("{0}", r"/it\'s\ here")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:sslcert%3Da@db/nsb?sslrootcert=/ca.pem&sslcert=%2Fc&sslkey=~/k",
        "postgresql://u@db/sslcert",
        "host=db sslrootcert=system password='sslkey=k' sslkey=engine:k passfile=''",
        "Host=db;Username=u;Password='a;sslkey=k'",
        "Driver={ODBC Driver 18 for SQL Server};Server=db;PWD={a;ServerCertificate=b}",
        "acme:anything",
    ],
)
def test_dsn_without_a_relative_path_stays_as_it_is(dsn: str) -> None:
    assert begin_at("/folder", dsn) == dsn


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("postgresql://app:pw@db1/nsb\n", "white space"),
        ("postgresql://app:pw@db1 /nsb", "white space"),
        (f"postgresql://app:pw@{MARK}@db1:5432,db2:5433/nsb", "it cannot be read"),
        (f"postgresql://app:%ff{MARK}@db1/nsb", "it cannot be read"),
    ],
)
def test_url_that_libpq_would_misread_is_refused_without_its_text(dsn: str, why: str) -> None:
    with pytest.raises(DsnError) as refusal:
        for_libpq(dsn)

    assert why in str(refusal.value)
    assert MARK not in str(refusal.value)


def test_url_may_name_an_abstract_socket() -> None:
    assert for_libpq("postgresql:///nsb?host=@abstract") == "postgresql:///nsb?host=@abstract"


@pytest.mark.parametrize("dsn", ["host=h user=app dbname=''", "postgresql://app@h/?dbname="])
def test_database_without_a_name_is_that_of_the_user(dsn: str) -> None:
    assert database_of(dsn) == "app"
