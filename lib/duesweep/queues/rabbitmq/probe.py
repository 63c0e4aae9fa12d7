"""Finding the messages over which a broker closes channels, where it does not say which they are.

A broker looks at a message before it asks where it is to go. So a copy for nowhere is closed over
like the message itself, and arrives at nobody's.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from duesweep.drivers.rabbitmq import ACCESS_REFUSED, ChannelClosedError, PublishResult
from duesweep.errors import DestinationError, MessageError
from duesweep.queues.rabbitmq.answers import Sent, culprit_error
from duesweep.queues.rabbitmq.link import Link

# Together, until one of them is closed over.
_AT_ONCE = 50
_HARMLESS = {PublishResult.RETURNED, PublishResult.CONFIRMED, PublishResult.UNSENDABLE}


class Probe:
    """Looks for culprits over a link, at most until `deadline` of the monotonic clock."""

    def __init__(self, link: Link, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def culprits(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        """Those found, by key, each with its fault."""
        found: dict[str, MessageError] = {}
        try:
            for start in range(0, len(suspects), _AT_ONCE):
                found |= self._among(suspects[start : start + _AT_ONCE])
        except (DestinationError, TimeoutError):
            # The others are met again in the next batch.
            return found
        return found

    def _among(self, suspects: Sequence[Sent]) -> dict[str, MessageError]:
        closed = self._closed_over(suspects)
        if closed is None:
            return {}
        if len(suspects) == 1:
            return {suspects[0].key: culprit_error(closed)}
        half = len(suspects) // 2
        return self._among(suspects[:half]) | self._among(suspects[half:])

    def _closed_over(self, suspects: Sequence[Sent]) -> ChannelClosedError | None:
        """What the broker says where it closes the channel over one of these."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        publisher = self._link.publisher()
        publisher.publish([replace(s.publication, exchange="", routing_key="") for s in suspects])
        publisher.wait(left)
        results = publisher.take_results()
        fault = publisher.fault
        # Without the right to publish to nowhere, a refusal says nothing of the message.
        if isinstance(fault, ChannelClosedError) and fault.code != ACCESS_REFUSED:
            return fault
        if not _HARMLESS.issuperset(results):
            raise TimeoutError
        return None
