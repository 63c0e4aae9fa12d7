"""Headers as NServiceBus writes them, and others that are odd."""

from random import Random
from types import SimpleNamespace

from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.message import Message
from duesweep.stores.kinds import SQL_SERVER_KINDS

_NAMES = (
    '"a"',
    '"NServiceBus.MessageId"',
    '"NServiceBus.EnclosedMessageTypes"',
    '"\\u0061"',
    '"a\\"b"',
)
_FORWARD_NAMES = (
    f'"{FORWARD_DESTINATION}"',
    f'"{FORWARD_DESTINATION}"',
    '"NServiceBus.SqlServer.Forward\\u0044estination"',
)
_VALUES = (
    *('"x"', '""', '"A, B; C"', '"\\u002b\\/"', '"\\ud83d\\ude00"', '"\\""', '",\\"", "'),
    *(f'"{FORWARD_DESTINATION}"', f'",\\"{FORWARD_DESTINATION}\\":\\"Billing"'),
    *("null", "1", "[]", '{"b":"c"}', '"\\ud800"', "true"),
)
_ADDRESSES = (
    '"Billing"',
    '"Billing"',
    '"\\u0042illing"',
    '"Billing@[public]"',
    "null",
    '"x","y":"z"',
)
# White space around a comma and after a colon: none, as Python writes it, and indented.
_SPACES = (*[("", "", "")] * 3, ("", " ", " "), ("", "\r\n\t", " "), (" ", "\n", ""))


def random_headers(random: Random) -> str:
    """Headers as NServiceBus and others write them, or with something odd."""
    usual = random.random() < 0.5
    before, after, colon = random.choice(_SPACES)
    members = [
        f"{random.choice(_NAMES)}:{colon}{random.choice(_VALUES[:4] if usual else _VALUES)}"
        for _ in range(random.randrange(4))
    ]
    forward = random.choice(_FORWARD_NAMES[:2] if usual else _FORWARD_NAMES)
    if random.random() < 0.9:
        address = random.choice(_ADDRESSES[:2] if usual else _ADDRESSES)
        members.append(f"{forward}:{colon}{address}")
    if not usual:
        members += random.choices(members, k=random.randrange(2)) if members else []
        random.shuffle(members)
    text = "{" + after + f"{before},{after}".join(members) + before + "}"
    ends = (
        "}",
        ",",
        " ",
        "\n",
        "\x1f",
        f',"{FORWARD_DESTINATION}":"',
        f',"{FORWARD_DESTINATION}":"x',
    )
    return text + ("" if usual or random.random() < 0.9 else random.choice(ends))


def careful_message(headers: str | None) -> Message:
    """The message that the careful form makes of a row with these headers."""
    row = SimpleNamespace(message_key="", due_us=0, instant_us=0, headers=headers, body=b"")
    return SQL_SERVER_KINDS["sqlserver"].read_message(row, 0)
