"""What goes over the wire beside a message's body."""

from typing import Any

import pika

from duesweep.drivers.rabbitmq.exact import ExactProperties
from duesweep.drivers.rabbitmq.values import SEQUENCE_HEADER, Copy, Publication


def properties_of(publication: Publication | Copy, tag: int, most_bytes: int) -> Any:
    """The properties of a publication, with its number among the headers. Raises `ValueError` for
    some that are longer than a frame, over which a broker would close the whole connection, and
    what pika raises for those that have no place in AMQP.
    """
    if isinstance(publication, Copy):
        copied = ExactProperties(publication.encoded.with_number(SEQUENCE_HEADER, tag))
        _check_size(copied, most_bytes)
        return copied
    headers = {**publication.headers, SEQUENCE_HEADER: tag}
    properties = pika.BasicProperties(headers=headers, **publication.properties)
    # Text takes at most four bytes a character.
    length = sum(len(str(name)) + len(str(value)) for name, value in publication.headers.items())
    if 4 * length >= most_bytes // 2:
        _check_size(properties, most_bytes)
    return properties


def _check_size(properties: Any, most_bytes: int) -> None:
    if sum(map(len, properties.encode())) > most_bytes:
        raise ValueError("The headers do not fit a frame")
