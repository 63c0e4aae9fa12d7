"""Each line of the corpus is read, or refused in one sentence, with little memory."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from duesweep.cli.app import main
from duesweep.core.address import PostgreSqlAddresses, SqlServerAddresses
from duesweep.core.errors import (
    DestinationError,
    MessageError,
    UnreadableAddressError,
    UnreadableHeadersError,
    make_printable,
)
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    read_json,
    read_xml,
    remove_forward_destination,
    write_json,
)
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.wire import Punctuality
from support.bad_input import BadInput, each_of
from support.config_files import MINIMAL, file_of

Capture = pytest.CaptureFixture[str]

# An element, a header and an error each take some hundred bytes.
_BYTES_PER_BYTE, _BYTES_AT_LEAST = 120, 1_000_000
_PARSERS: dict[str, Callable[[str], object]] = {
    "postgresql": PostgreSqlAddresses("Sales.Orders", "public").parse,
    "sqlserver": SqlServerAddresses("Sales.Orders", "dbo", "nsb").parse,
}


@contextmanager
def _little_memory(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < _BYTES_AT_LEAST + _BYTES_PER_BYTE * size


def _ending(act: Callable[[], object], kind: type[MessageError]) -> str:
    """How it ends: `read`, or `refused` with a sentence."""
    told = None
    try:
        act()
    except kind as error:
        told = str(error)
    if told is None:
        return "read"
    assert len(told) < 600
    assert told
    return "refused"


@pytest.mark.parametrize("one", each_of("headers_json"))
def test_headers_in_json_are_read_or_refused(one: BadInput) -> None:
    text = one.text

    with _little_memory(len(text)):
        ending = _ending(lambda: read_json(text), UnreadableHeadersError)

    assert ending == one["ending"]


@pytest.mark.parametrize("one", each_of("headers_json"))
def test_headers_in_json_that_are_read_stay_as_they_are(one: BadInput) -> None:
    text = one.text
    if one["ending"] == "refused":
        return
    headers = dict(read_json(text))
    delivered = remove_forward_destination(text)

    del headers[FORWARD_DESTINATION]
    assert read_json(delivered) == headers
    assert read_json(write_json(headers)) == headers


@pytest.mark.parametrize("one", each_of("headers_xml"))
def test_headers_in_xml_are_read_or_refused(one: BadInput) -> None:
    data = one.data

    with _little_memory(len(data)):
        ending = _ending(lambda: read_xml(data), UnreadableHeadersError)

    assert ending == one["ending"]


@pytest.mark.parametrize("transport", _PARSERS)
@pytest.mark.parametrize("one", each_of("addresses"))
def test_address_is_read_or_refused(one: BadInput, transport: str) -> None:
    address = one.text

    with _little_memory(len(address)):
        ending = _ending(lambda: _PARSERS[transport](address), UnreadableAddressError)

    assert ending == one[transport]


@pytest.mark.parametrize("one", each_of("addresses"))
def test_address_that_rabbitmq_cannot_name_is_refused_without_asking_it(one: BadInput) -> None:
    brokers = Brokers(("amqp://without-password@no-broker",), "queues.default")
    session = RabbitMqQueueSession(
        Link(brokers, 10), Style.CONVENTIONAL, "Sales.Orders", Punctuality(is_wanted=False)
    )

    def resolve() -> None:
        with suppress(DestinationError):  # there is no broker
            session.resolve(one.text)

    assert _ending(resolve, UnreadableAddressError) == one["rabbitmq"]


@pytest.mark.parametrize("one", each_of("configurations"))
def test_configuration_is_read_or_refused_in_a_line_for_each_problem(
    one: BadInput, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sales.toml").write_bytes(one.data)

    code = main(["config", "--config", "sales.toml"])

    told = capsys.readouterr().err
    if one["says"] is None:
        assert (code, told) == (0, "")
        return
    assert code == 2
    lines = told.rstrip("\n").split("\n")
    assert all(line.startswith("duesweep: ") for line in lines)
    assert one["says"] in told
    assert len(lines) == one.get("problems", 1)
    assert lines == list(map(make_printable, lines))
    assert len(told) < 12_000
    assert "s3cret" not in told


def test_name_that_the_locale_lacks_is_printed_with_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(printed, "latin-1", write_through=True))
    file = file_of(MINIMAL.replace("Sales.Orders", "Größe.注文"))

    assert main(["setup", "--print-sql", "--config", str(file)]) == 0

    assert "Größe.\\u6ce8\\u6587" in printed.getvalue().decode("latin-1")
