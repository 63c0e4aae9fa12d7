"""Headers as JSON: accepted and refused ones, and delivery byte for byte."""

import json
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    HeaderReader,
    Headers,
    escape_non_ascii,
    read_json,
    remove_forward_destination,
    remove_headers,
    write_json,
)
from duesweep.stores.forward import cut_off, forwarded_to, split_headers
from duesweep_testing.builders import DelayedRow
from support import recordings

FORWARD = f'"{FORWARD_DESTINATION}":"Billing"'
DELIVERED = {row.message_id: row for rows in recordings.delivered_rows().values() for row in rows}
DELAYED = {
    read_json(row.headers)["NServiceBus.MessageId"]: row for row in recordings.delayed_rows()
}

# Half of a surrogate pair is not valid text: no database stores it.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.none() | texts | st.sampled_from([FORWARD_DESTINATION, f'"{FORWARD_DESTINATION}"', ","])
names = (texts | st.sampled_from([f"{FORWARD_DESTINATION}2", f',"{FORWARD_DESTINATION}'])).filter(
    lambda name: name != FORWARD_DESTINATION
)
header_sets = st.dictionaries(names, values, max_size=6)


@pytest.mark.parametrize("message_id", DELIVERED)
def test_recorded_delayed_headers_become_the_recorded_delivered_headers_byte_for_byte(
    message_id: str,
) -> None:
    text = DELAYED[message_id].headers

    assert FORWARD_DESTINATION in read_json(text)
    assert remove_forward_destination(text) == DELIVERED[message_id].headers


@pytest.mark.parametrize("row", DELAYED.values(), ids=lambda row: row.key)
def test_headers_read_and_written_again_are_the_recorded_text(row: DelayedRow) -> None:
    assert write_json(read_json(row.headers)) == row.headers


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="cut after the brace"),
        pytest.param('{"a":"b"} x', id="more after the end"),
        pytest.param('{"a":"b",}', id="a comma too many"),
        pytest.param("{'a':'b'}", id="single quotes"),
        pytest.param("[]", id="an array"),
        pytest.param('"a"', id="a text"),
        pytest.param("1", id="a number"),
        pytest.param("NaN", id="NaN"),
        pytest.param('{"a":-Infinity}', id="infinity for a value"),
        pytest.param('{"a":["b"]}', id="an array for a value"),
        pytest.param(r'{"a":"\udc00"}', id="a low surrogate alone"),
        pytest.param(r'{"a":"\uD83Dx"}', id="a high surrogate before a one"),
        pytest.param(r'{"a":"\x41"}', id="an escape that JSON does not know"),
        pytest.param('{"a":"b\nc"}', id="a line's end in a value"),
        pytest.param('{"a\tb":"c"}', id="a tab in a name"),
        pytest.param('{1:"a"}', id="a number for a name"),
        pytest.param('{null:"a"}', id="null for a name"),
    ],
)
def test_what_the_transport_never_writes_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableHeadersError, match=r"^The (headers|value of header) "):
        read_json(text)


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("{}", {}),
        (' \r\n\t{ "a" : "b" , "c" : null }\n', {"a": "b", "c": None}),
        (r'{"a":"\u0001\u0000"}', {"a": "\x01\x00"}),
        (r'{"a":"\uD83D\uDE00"}', {"a": "\N{GRINNING FACE}"}),
        (r'{"a":"\\ud800"}', {"a": r"\ud800"}),
        ('{"a":"1","a":"2"}', {"a": "2"}),
        ('{"":""}', {"": ""}),
    ],
)
def test_unusual_but_proper_headers_are_read(text: str, headers: Headers) -> None:
    assert read_json(text) == headers


@pytest.mark.parametrize(
    ("text", "delivered"),
    [
        pytest.param("{" + FORWARD + "}", "{}", id="the only member"),
        pytest.param("{" + FORWARD + ',"a":"b"}', '{"a":"b"}', id="the first"),
        pytest.param(
            '{"a":"b",' + FORWARD + ',"c":null}', '{"a":"b","c":null}', id="in the middle"
        ),
        pytest.param('{"a":"b",' + FORWARD + "}", '{"a":"b"}', id="the last"),
        pytest.param('{"a":"b"}', '{"a":"b"}', id="absent"),
        pytest.param("{}", "{}", id="absent from no headers"),
        pytest.param(f'{{"a":"b","{FORWARD_DESTINATION}":null}}', '{"a":"b"}', id="null"),
        pytest.param(
            f'{{"{FORWARD_DESTINATION}" :\r\n\t"Billing" ,"a":"b"}}', '{"a":"b"}', id="whitespace"
        ),
        pytest.param(
            f'{{ "a" : "b" , "{FORWARD_DESTINATION}" : "Billing" }}',
            '{ "a" : "b" }',
            id="much whitespace",
        ),
        pytest.param(
            f'{{\n  "a": "\\u00e4",\n  "{FORWARD_DESTINATION}": "x",\n  "c": null\n}}\n',
            '{\n  "a": "\\u00e4",\n  "c": null\n}\n',
            id="indented",
        ),
        pytest.param(f'{{ "{FORWARD_DESTINATION}" : "x" }} ', "{} ", id="the only one with space"),
        pytest.param(
            r'{"a":"b","\u004eServiceBus.SqlServer.ForwardDestination":"Billing"}',
            '{"a":"b"}',
            id="its name escaped",
        ),
        pytest.param(
            "{" + FORWARD + r',"a":"\/",' + FORWARD + ',"b":null}',
            r'{"a":"\/","b":null}',
            id="twice",
        ),
        pytest.param(
            "{" + FORWARD + r',"a":"\u0001\/",' + FORWARD + "}",
            r'{"a":"\u0001\/"}',
            id="twice, with an escape",
        ),
        pytest.param(
            "{" + FORWARD + r',"\u004eServiceBus.SqlServer.ForwardDestination":null,"a":"b"}',
            '{"a":"b"}',
            id="plain and escaped",
        ),
        pytest.param(
            r'{"NServiceBus.SqlServer.\u0046orwardDestination":"x",' + FORWARD + ',"a":"b"}',
            '{"a":"b"}',
            id="plain and escaped in its last word",
        ),
        pytest.param(
            f'{{"a":"{FORWARD_DESTINATION}","b":"\\"{FORWARD_DESTINATION}\\":\\"x\\"",{FORWARD}}}',
            f'{{"a":"{FORWARD_DESTINATION}","b":"\\"{FORWARD_DESTINATION}\\":\\"x\\""}}',
            id="its name in values",
        ),
        pytest.param(
            f'{{"a":"{{","{FORWARD_DESTINATION}":"x\\",\\"y\\":\\"z","b":"c"}}',
            '{"a":"{","b":"c"}',
            id="a value that looks like members",
        ),
        pytest.param('{"a":"1","a":"2",' + FORWARD + "}", '{"a":"1","a":"2"}', id="another twice"),
    ],
)
def test_forward_destination_is_cut_out_and_the_rest_stays(text: str, delivered: str) -> None:
    read_json(text)

    assert remove_forward_destination(text) == delivered


@given(header_sets, st.integers(0, 6), values)
@example({"a": ","}, 1, None)
@example({",": "{", "b": '"'}, 1, '","')
def test_whatever_the_headers_and_its_place_only_the_forward_destination_goes(
    headers: dict[str, str | None], place: int, destination: str | None
) -> None:
    members = list(headers.items())
    members.insert(place, (FORWARD_DESTINATION, destination))
    text = write_json(dict(members))

    for delivered in (
        remove_forward_destination(text),
        remove_headers(text, {FORWARD_DESTINATION}),
    ):
        assert delivered == write_json(headers)
        assert list(read_json(delivered).items()) == list(headers.items())


@given(header_sets, st.integers(0, 6), st.sampled_from(["", " ", "\n", "\r\n\t "]))
def test_whatever_the_whitespace_only_the_forward_destination_goes(
    headers: dict[str, str | None], place: int, space: str
) -> None:
    members = list(headers.items())
    members.insert(place, (FORWARD_DESTINATION, "Billing"))
    separators = (f"{space},{space}", f"{space}:{space}")
    text = json.dumps(dict(members), ensure_ascii=True, separators=separators)

    delivered = remove_forward_destination(text)
    assert delivered == remove_headers(text, {FORWARD_DESTINATION})
    assert list(read_json(delivered).items()) == list(headers.items())
    if 0 < len(headers) <= place:
        before, forward = split_headers(text)
        assert (forwarded_to(forward), before + "}") == ("Billing", delivered)
        assert before + cut_off(forward) == text


@given(header_sets)
def test_headers_written_and_read_are_the_same(headers: dict[str, str | None]) -> None:
    assert list(read_json(write_json(headers)).items()) == list(headers.items())


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_or_unreadable_and_never_anything_else(text: str) -> None:
    try:
        headers = read_json(text)
    except UnreadableHeadersError:
        return
    assert all(value is None or isinstance(value, str) for value in headers.values())


@given(st.recursive(values | st.integers(), lambda v: st.lists(v) | st.dictionaries(texts, v)))
def test_of_all_json_only_objects_of_texts_and_nulls_are_read(value: object) -> None:
    proper = isinstance(value, dict) and {*map(type, value.values())} <= {str, type(None)}
    with nullcontext() if proper else pytest.raises(UnreadableHeadersError):
        assert read_json(json.dumps(value)) == value


@pytest.mark.parametrize("value", ["1", '{"b":"c"}', "[]", "true"])
def test_repeated_name_with_a_value_that_is_no_text_is_poison(value: str) -> None:
    text = f'{{"a":{value},"a":"x\\u0041","{FORWARD_DESTINATION}":"Billing"}}'

    with pytest.raises(UnreadableHeadersError):
        remove_forward_destination(text)


def test_headers_that_are_null_are_poison() -> None:
    with pytest.raises(UnreadableHeadersError):
        read_json(None)


@given(header_sets)
@example({"Grüße": '☃ \U0001f600 \\ " / \x7f', "a": None})
def test_escaped_headers_are_ascii_and_the_same(headers: dict[str, str | None]) -> None:
    escaped = escape_non_ascii(write_json(headers))

    assert escaped.isascii()
    assert list(read_json(escaped).items()) == list(headers.items())


def test_headers_that_are_ascii_stay_as_they_are() -> None:
    text = '{ "a\\/b" : "\\u00e9" }'

    assert escape_non_ascii(text) is text


_PARTS = ("{", "}", "[", "]", ",", ":", '"', '"a"', '"b"', '"c":"d"', "null", "1", "\n", "\\", "{}")
_fragments = st.lists(st.sampled_from(_PARTS), max_size=9).map("".join)


@given(
    st.lists(_fragments | header_sets.map(write_json), min_size=1, max_size=5),
    st.sampled_from(["", "}"]),
)
@example(['{"a":"b"', '"c":"d"}'], "")
@example(['{"a":"b"},{"a":"b"'], "}")
@example(['{"a":"b', '":"c"'], "}")
@example(['{"a":"b"', '"b":"c"}', '{"a":"b"},{"a":"b"}'], "")
@example(['{"a":"b"}\n],[{"a":"b"'], "}")
def test_many_headers_are_read_at_once_as_each_would_be(texts: list[str], end: str) -> None:
    texts = [text.removesuffix(end) for text in texts]
    alone = [_read_or_none(text + end) for text in texts]
    reader = HeaderReader("a", "b")
    reader.learn(filter(None, alone))

    found = reader.read(texts, end)

    # A name with a quote or the like is not learned.
    if found is not None or (None not in alone and "\\" not in "".join(texts)):
        read = [each for each in alone if each is not None]
        assert len(read) == len(texts)
        assert found == [(each.get("a"), each.get("b")) for each in read]


def _read_or_none(text: str) -> Headers | None:
    try:
        return read_json(text)
    except UnreadableHeadersError:
        return None


def test_headers_with_a_name_that_is_not_known_are_not_read_at_once() -> None:
    reader = HeaderReader("a", "b")
    before = reader.read(['{"a":"b"'], "}")
    reader.learn([{"a": "b"}])

    assert before is None
    assert reader.read(['{"a":"b"', '{"b":"c"'], "}") == [("b", None), (None, "c")]
    assert reader.read(['{"a":"b"', '{"c":"d"'], "}") is None
    reader.learn([{"c": "d"}])
    assert reader.read(['{"a":"b"', '{"c":"d"'], "}") == [("b", None), (None, None)]
