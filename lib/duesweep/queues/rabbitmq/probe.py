"""Finds the messages that make a broker close the channel, if the broker does not name them.

A broker checks a message before it routes it. So a copy that is routed to no queue makes it close
the channel as the message itself does, and nobody receives the copy.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from duesweep.drivers.rabbitmq import ACCESS_REFUSED, ChannelClosedError, PublishResult
from duesweep.errors import DestinationError, MessageError
from duesweep.queues.rabbitmq.answers import Sent, culprit_error
from duesweep.queues.rabbitmq.link import Link

# How many copies are published together; after a closed channel, half as many.
_AT_ONCE = 50
_HARMLESS = {PublishResult.RETURNED, PublishResult.CONFIRMED, PublishResult.UNSENDABLE}


class Probe:
    """Looks for culprits on a link, until `deadline` (of the monotonic clock) at the latest."""

    def __init__(self, link: Link, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def culprits(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        """The culprits that were found, by key, each with its error."""
        found: dict[str, MessageError] = {}
        try:
            for start in range(0, len(suspects), _AT_ONCE):
                found |= self._find_among(suspects[start : start + _AT_ONCE])
        except (DestinationError, TimeoutError):
            # The others come again in the next batch.
            return found
        return found

    def _find_among(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        closed = self._publish_copies(suspects)
        if closed is None:
            return {}
        if len(suspects) == 1:
            return {suspects[0].key: culprit_error(closed)}
        half = len(suspects) // 2
        return self._find_among(suspects[:half]) | self._find_among(suspects[half:])

    def _publish_copies(self, suspects: Sequence[Sent]) -> ChannelClosedError | None:
        """Publish copies to nowhere. The broker's error if it closes the channel, else None."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        publisher = self._link.publisher()
        publisher.publish([replace(s.publication, exchange="", routing_key="") for s in suspects])
        publisher.wait(left)
        results = publisher.take_results()
        fault = publisher.fault
        # If this user may not publish to nowhere, the refusal says nothing about the message.
        if isinstance(fault, ChannelClosedError) and fault.code != ACCESS_REFUSED:
            return fault
        if not _HARMLESS.issuperset(results):
            raise TimeoutError
        return None
