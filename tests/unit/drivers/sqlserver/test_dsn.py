"""ODBC connection strings: their meaning, and the JDBC settings that follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import ConfigError
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of, split_jdbc_url

DSN = "Driver={ODBC Driver 18 for SQL Server};Server=db.example,1433;Database=nsb;Uid=u;Pwd=p"


def test_pairs_are_read_whatever_their_case_and_spacing() -> None:
    dsn = OdbcDsn.parse(" SERVER = db.example ; Initial Catalog=nsb;User ID=u; password=p;")

    assert dsn.pairs == {"server": "db.example", "database": "nsb", "uid": "u", "pwd": "p"}


def test_value_in_braces_may_hold_anything() -> None:
    assert OdbcDsn.parse("Server=h;Pwd={a;b}}c=d{e}").pairs["pwd"] == "a;b}c=d{e"


@given(st.dictionaries(st.sampled_from(["pwd", "app", "wsid"]), st.text(min_size=1)))
def test_written_values_are_read_back(values: dict[str, str]) -> None:
    pairs = {"server": "h"} | {name: value for name, value in values.items() if value.strip()}
    wanted = {name: value.strip() if "{" not in value else value for name, value in pairs.items()}

    read = OdbcDsn.parse(OdbcDsn(pairs).text()).pairs

    assert {name: value.strip() for name, value in read.items()} == {
        name: value.strip() for name, value in wanted.items()
    }


def test_what_is_missing_is_added_and_what_is_there_stays() -> None:
    text = OdbcDsn.parse("Server=h;APP=mine").text(APP="duesweep", ConnectRetryCount="0")

    assert OdbcDsn.parse(text).pairs == {"server": "h", "app": "mine", "connectretrycount": "0"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "Server", "Database=nsb", "Server=h;Pwd={open", "Server=h;Pwd=s3cret};Uid=u"),
        "Server=db1 Password=s3cret;Database=nsb",
        "Server=db1;Database=nsb user=app password=s3cret",
        "Server=db1;Database=nsb;Uid=app password=s3cret",
        "Driver=x;Server=db1,1433 password=s3cret;Database=nsb",
        "Server=db1;Database=nsb;User ID=u;Password=s3cret;AttachDbFilename=x",
        f"Server={'a' * 64};Database=nsb;Pwd=s3cret",
        "Server=a..b;Database=nsb;Pwd=s3cret",
        "jdbc:sqlserver://db1;user=u;password=s3cret",
    ],
)
def test_unreadable_text_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError, match="The dsn") as caught:
        OdbcDsn.parse(text)
    assert "s3cret" not in str(caught.value)


def test_secrets_show_in_no_repr() -> None:
    assert repr(OdbcDsn.parse(DSN)) == "OdbcDsn(db.example,1433/nsb)"


@pytest.mark.parametrize(
    ("server", "url", "instance"),
    [
        ("db.example,1433", "jdbc:sqlserver://db.example:1433", None),
        ("tcp:db.example, 1533", "jdbc:sqlserver://db.example:1533", None),
        ("db.example", "jdbc:sqlserver://db.example:1433", None),
        ("db.example\\X", "jdbc:sqlserver://db.example", "X"),
        ("(local)", "jdbc:sqlserver://localhost:1433", None),
        ("::1,1433", "jdbc:sqlserver://[::1]:1433", None),
    ],
)
def test_jdbc_url_is_derived_from_the_server(server: str, url: str, instance: str | None) -> None:
    found, properties = OdbcDsn.parse(f"Server={server};Uid=u;Pwd=p").jdbc()

    assert found == url
    assert properties.get("instanceName") == instance
    assert (properties["user"], properties["password"]) == ("u", "p")


@pytest.mark.parametrize(
    ("setting", "properties"),
    [
        ("Encrypt=yes", {"encrypt": "true"}),
        ("Encrypt=Mandatory", {"encrypt": "true"}),
        ("Encrypt=no", {"encrypt": "false"}),
        ("Encrypt=strict", {"encrypt": "strict"}),
        ("TrustServerCertificate=yes", {"encrypt": "true", "trustServerCertificate": "true"}),
        ("HostNameInCertificate=x", {"encrypt": "true", "hostNameInCertificate": "x"}),
        (
            "Trusted_Connection=yes",
            {
                "encrypt": "true",
                "integratedSecurity": "true",
                "authenticationScheme": "JavaKerberos",
            },
        ),
    ],
)
def test_security_settings_hold_for_jdbc_too(setting: str, properties: dict[str, str]) -> None:
    assert OdbcDsn.parse(f"Server=h;{setting}").jdbc()[1] == properties


@pytest.mark.parametrize("text", ["DSN=mine", "Server=h;Authentication=ActiveDirectoryMsi"])
def test_dsn_without_a_jdbc_equivalent_needs_a_jdbc_url(text: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.jdbc_url"):
        OdbcDsn.parse(text).jdbc()


def test_database_is_the_dsns() -> None:
    assert database_of(DSN) == "nsb"
    with pytest.raises(ConfigError, match="names no Database"):
        database_of("Server=h")


@pytest.mark.parametrize("name", ["Encrypt", "TrustServerCertificate", "Trusted_Connection"])
@pytest.mark.parametrize("value", ["True", "1", "", "{yes }junk"])
def test_value_that_odbc_does_not_know_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i)the dsn's {name} is none of|cannot be read"):
        OdbcDsn.parse(f"Server=h;{name}={value}")


def test_settings_of_a_jdbc_url_become_properties_which_no_page_of_spark_shows() -> None:
    text = "jdbc:sqlserver://h:1433;user=u;password={p;}}w};encrypt=true;"

    assert split_jdbc_url(text) == (
        "jdbc:sqlserver://h:1433",
        {"user": "u", "password": "p;}w", "encrypt": "true"},
    )


@pytest.mark.parametrize(
    "text",
    [
        *("jdbc:sqlsever://h;password=s3cret", "h:1433", "jdbc:sqlserver://h;password={s3cret"),
        *("jdbc:sqlserver://db1,password=s3cret", "jdbc:sqlserver://app:s3cret@db1"),
        "jdbc:sqlserver://db1/nsb password=s3cret",
        "jdbc:sqlserver://db1;user=app,password=s3cret",
        f"jdbc:sqlserver://{'a' * 64};password=s3cret",
    ],
)
def test_jdbc_url_that_cannot_be_read_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.jdbc_url") as refused:
        split_jdbc_url(text)

    assert "s3cret" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("host", ["[::1]", "[fe80::1]:1433"])
def test_jdbc_url_may_have_an_ipv6_address(host: str) -> None:
    assert split_jdbc_url(f"jdbc:sqlserver://{host};databaseName=nsb") == (
        f"jdbc:sqlserver://{host}",
        {"databaseName": "nsb"},
    )
