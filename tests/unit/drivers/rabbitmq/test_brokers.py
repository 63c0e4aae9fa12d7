"""Addresses of brokers, why one could not be connected to, and that a message's properties survive
byte for byte.
"""

import ssl
import struct
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorAMQPHandshakeError,
    AMQPConnectorSocketConnectError,
)

from duesweep.core.errors import NO_DESCRIPTORS, ConfigError, DuesweepError, QueueError
from duesweep.drivers.rabbitmq.connection import Brokers, describe_broker
from duesweep.drivers.rabbitmq.errors import (
    ChannelClosedError,
    channel_error,
    connect_error,
    lost_error,
)
from duesweep_transport.exact import Encoded
from support.logins import Authority


def _parameters(url: str, **files: str) -> pika.connection.Parameters:
    (parameters,) = Brokers((url,), "queues.main", **files).parameters()
    return parameters


@pytest.mark.parametrize(
    ("url", "shown_as"),
    [
        ("amqp://u:p@host", "host:5672 vhost /"),
        ("amqp://u:p@host/", "host:5672 vhost /"),
        ("amqp://u:p@host:5673/%2F", "host:5673 vhost /"),
        ("amqps://u:p@host/sales", "host:5671 vhost sales"),
        ("amqp://u:p@[::1]:5673/a%2Fb%25%40c", "::1:5673 vhost a/b%@c"),
    ],
)
def test_url_says_host_port_and_vhost(url: str, shown_as: str) -> None:
    assert describe_broker(_parameters(url)) == shown_as


def test_user_and_password_are_percent_decoded() -> None:
    credentials = _parameters("amqp://a%40b:p%2Fw%3A%23%25%3F%5B@host/v").credentials

    assert (credentials.username, credentials.password) == ("a@b", "p/w:#%?[")


@pytest.mark.parametrize(("query", "heartbeat"), [("", 60), ("?heartbeat=7", 7)])
def test_heartbeat_is_a_minute_unless_the_url_says_more(query: str, heartbeat: int) -> None:
    assert _parameters(f"amqp://u:p@host/v{query}").heartbeat == heartbeat


@pytest.mark.parametrize(
    "url",
    [
        "http://u:s3cret@host/v",
        "u:s3cret@host/v",
        "amqp:///v",
        "amqp://",
        "amqp://u:s3cret@/v",
        "amqp://u:s3cret@host:port/v",
        "amqp://u:s3cret@host:99999/v",
        "amqp://u:s3cret@[host/v",
        "amqp://u:[s3cret]@host/v",
        "amqp://u:s3#cret@host/v",
        "amqp://u:12#s3cret@host/v",
        "amqp://u:12/s3cret@host/v",
        "amqp://u:12?s3cret@host/v",
        "amqp://u:s3cret@host/v?heartbeat=s3cret",
        "amqp://u:s3cret@host/v?connection_attempts=0",
        "amqp://u:s3cret@host/v?s3cret=1",
        "amqp://mq1;username=app;password=s3cret",
        "amqp://mq1:5672;username=app;password=s3cret",
        "amqp://app:s3cret@mq1/v;virtualhost=x",
        "amqp://mq1?password=s3cret",
        "amqp://app:s3cret@mq..1/",
        f"amqp://app:s3cret@{'a' * 64}/",
        "host=mq1;password=s3cret;certPath=/c.p12",
        "host=mq1;password=a;s3cret=b",
        "host=mq1;password=s3cret;requestedHeartbeat=x",
        "host=mq1;password=s3cret;useTls=treu",
        "username=app;password=s3cret",
        "rabbitmq://app:s3cret@mq1",
        "host=mq 1;password=s3cret",
        "host=mq1:x;password=s3cret",
        "s3cret",
    ],
)
def test_url_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"queues\.main\.url") as caught:
        _parameters(url)

    assert "s3" not in str(caught.value)
    assert "12" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_repr_holds_no_url() -> None:
    brokers = Brokers(("amqp://u:s3cret@host/v",), "queues.main")

    assert "s3cret" not in repr(brokers)
    assert "s3cret" not in repr(_parameters("amqp://u:s3cret@host/v"))


def test_amqps_checks_certificates_and_host_names() -> None:
    options = _parameters("amqps://u:p@Broker.example/v").ssl_options

    assert options.server_hostname == "broker.example"
    assert options.context.check_hostname
    assert options.context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_settings_of_pikas_that_would_leave_out_checks_are_refused(scheme: str) -> None:
    url = f"{scheme}://u:p@host/v?ssl_options=%7B%27cert_reqs%27%3A0%7D"

    with pytest.raises(ConfigError, match="has ssl_options, which are not used; write amqps"):
        _parameters(url)


def test_amqp_has_no_tls() -> None:
    assert _parameters("amqp://u:p@host/v").ssl_options is None


def test_certificates_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match=r"queues\.main: .*absent\.pem"):
        _parameters("amqps://u:p@host/v", ca_file="absent.pem")


def test_encrypted_key_is_refused_instead_of_asking_for_its_password(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("client")
    plain = load_pem_private_key(key.read_bytes(), None)
    locked = BestAvailableEncryption(b"s3cret")
    key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))

    with pytest.raises(ConfigError, match=r"client_key"):
        _parameters("amqps://u:p@host/v", certificate=str(certificate), key=str(key))


def _no(code: int, text: str = "NO") -> pika.exceptions.ConnectionClosedByBroker:
    return pika.exceptions.ConnectionClosedByBroker(code, text)


def _guess(kind: type[Exception], cause: Exception) -> Exception:
    # As pika makes them.
    return kind(repr(cause))


ALERT = pika.exceptions.StreamLostError(
    "Stream connection lost: SSLError(1, '[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca')"
)
CUT = pika.exceptions.StreamLostError("Transport indicated EOF")


@pytest.mark.parametrize(
    "error",
    [
        _no(403),
        _no(530),
        _guess(pika.exceptions.ProbableAuthenticationError, _no(403)),
        _guess(pika.exceptions.ProbableAccessDeniedError, _no(530)),
        AMQPConnectionWorkflowFailed(
            [
                AMQPConnectorAMQPHandshakeError(
                    _guess(pika.exceptions.ProbableAuthenticationError, _no(403))
                )
            ]
        ),
        pika.exceptions.AuthenticationError("PLAIN"),
        ssl.SSLCertVerificationError("certificate verify failed"),
        ssl.SSLError("WRONG_VERSION_NUMBER"),
        _guess(pika.exceptions.IncompatibleProtocolError, ALERT),
    ],
    ids=repr,
)
def test_refusal_while_connecting_is_a_wrong_setting(error: Exception) -> None:
    assert isinstance(connect_error("host:5672", error), ConfigError)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        CUT,
        _no(320),
        _guess(pika.exceptions.ProbableAuthenticationError, CUT),
        _guess(pika.exceptions.ProbableAccessDeniedError, CUT),
        _guess(pika.exceptions.ProbableAccessDeniedError, _no(320)),
        _no(530, "NOT_ALLOWED - vhost 'v' is down"),
        *(
            _guess(pika.exceptions.ProbableAccessDeniedError, _no(530, f"NOT_ALLOWED - {text}"))
            for text in (
                "connection refused: node connection limit (5) is reached",
                "access to vhost 'v' refused for user 'app': connection limit (5) is reached",
                "access to vhost 'v' refused for user 'app': vhost 'v' is down",
            )
        ),
        ssl.SSLEOFError("EOF occurred in violation of protocol"),
        _guess(pika.exceptions.IncompatibleProtocolError, CUT),
    ],
    ids=repr,
)
def test_connection_that_is_cut_while_it_is_made_is_a_passing_fault(error: Exception) -> None:
    found = connect_error("host:5672", error)

    assert isinstance(found, QueueError)
    assert found.transient
    assert "host:5672" in str(found)


def test_every_address_that_was_tried_gives_its_reason() -> None:
    tried = [
        AMQPConnectorAMQPHandshakeError(ssl.SSLCertVerificationError("hostname mismatch")),
        AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "Connection refused")),
    ]

    text = str(connect_error("host:5671", AMQPConnectionWorkflowFailed(tried)))

    assert "hostname mismatch" in text
    assert "Connection refused" in text
    assert "Workflow" not in text


def test_loss_of_a_connection_says_of_which_and_why() -> None:
    found: DuesweepError = lost_error("host:5672 vhost /", _no(320))

    assert "host:5672 vhost /" in str(found)
    assert "(320)" in str(found)


def test_connection_that_is_lost_for_want_of_a_descriptor_says_so() -> None:
    found = lost_error("host:5672 vhost /", OSError(24, "Too many open files"))

    assert NO_DESCRIPTORS.text in str(found)
    assert found.advice == NO_DESCRIPTORS.advice


def test_channel_that_ends_with_its_connection_has_no_reason_of_its_own() -> None:
    assert channel_error(CUT) is None
    assert channel_error(_no(320)) is None


def test_channel_that_the_broker_closes_says_why() -> None:
    text = "NOT_FOUND - no exchange 'Billing' in vhost 'v'"

    found = channel_error(pika.exceptions.ChannelClosedByBroker(404, text))

    assert isinstance(found, ChannelClosedError)
    assert (found.code, str(found)) == (404, text)
    assert found.is_about("Billing")
    assert not found.is_about("Bill")


def _short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def _long(kind: bytes, value: bytes) -> bytes:
    return kind + struct.pack(">I", len(value)) + value


_VALUES = st.one_of(
    st.tuples(st.sampled_from([b"S", b"x", b"A", b"F"]), st.binary(max_size=20)).map(
        lambda pair: _long(*pair)
    ),
    st.sampled_from(
        [(b"t", 1), (b"b", 1), (b"B", 1), (b"s", 2), (b"U", 2), (b"u", 2), (b"I", 4), (b"i", 4),
         (b"l", 8), (b"L", 8), (b"f", 4), (b"d", 8), (b"D", 5), (b"T", 8), (b"V", 0)]
    ).flatmap(lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(kind[0].__add__)),
)  # fmt: skip
_ENTRIES = st.lists(st.tuples(st.binary(max_size=255), _VALUES), max_size=6)


def _block(entries: list[tuple[bytes, bytes]], before: bytes = b"", after: bytes = b"") -> bytes:
    """Content type and content encoding before the headers, the delivery mode after them."""
    table = b"".join(_short(name) + value for name, value in entries)
    flags = 0xF000 if before else 0x3000
    return struct.pack(">H", flags) + before + struct.pack(">I", len(table)) + table + after


@given(entries=_ENTRIES, texts=st.none() | st.tuples(*[st.binary(max_size=255)] * 2))
def test_block_survives(
    entries: list[tuple[bytes, bytes]], texts: tuple[bytes, bytes] | None
) -> None:
    before = b"".join(map(_short, texts)) if texts else b""
    block = _block(entries, before, b"\x02")

    encoded = Encoded.parse(block)

    assert encoded.headers == tuple(entries)
    assert encoded.block() == block
    numbered = encoded.with_number("number", 7)
    assert Encoded.parse(numbered.block()) == numbered
    assert numbered.number("number") == 7
    assert encoded.without({"number"}).headers == numbered.without({"number"}).headers


@given(block=st.binary(max_size=40))
def test_anything_else_is_a_value_error(block: bytes) -> None:
    with suppress(ValueError):
        Encoded.parse(block)


def test_properties_without_headers_have_none_until_there_is_one() -> None:
    block = b"".join(pika.BasicProperties(content_type="a/b", message_id="1").encode())

    encoded = Encoded.parse(block)

    assert encoded.headers is None
    assert encoded.block() == block
    assert encoded.without({"x-death"}).headers is None
    decoded = pika.BasicProperties().decode(encoded.with_number("n", 1).block())
    assert (decoded.content_type, decoded.message_id, decoded.headers) == ("a/b", "1", {"n": 1})


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (_long(b"S", "é".encode()), "é", None),
        (_long(b"x", "é".encode()), "é", None),
        (_long(b"x", b"\xff"), None, None),
        (b"I" + struct.pack(">i", -5), None, -5),
        (b"l" + struct.pack(">q", 2**40), None, 2**40),
        (b"B\xff", None, 255),
        (b"b\xff", None, -1),
        (b"t\x01", None, None),
        (b"d" + struct.pack(">d", 1.5), None, None),
        (b"V", None, None),
    ],
)
def test_header_is_text_or_a_whole_number_or_neither(
    value: bytes, text: str | None, number: int | None
) -> None:
    encoded = Encoded.parse(_block([(b"other", b"V"), (b"name", value)]))

    assert (encoded.text("name"), encoded.number("name")) == (text, number)
    assert (encoded.text("none"), encoded.number("none")) == (None, None)
