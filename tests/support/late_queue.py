"""A queue that answers late and can defer messages, as a script says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from duesweep.core.message import Message
from duesweep.core.store_clock import StoreClock
from duesweep.errors import DuesweepError, MessageError
from duesweep.queues.base import Confirmation, Destination


@dataclass(slots=True)
class LateQueue:
    """`late` are the answers to the keys that were sent; the keys in `silent` get none. `delivered`
    and `deferred` is what was asked for. What `trouble` names is raised: `resolve`, `deliver` or
    `defer` of a destination. `on_step` is called at the beginning of each step.
    """

    longest: int = 1_000
    late: dict[str, MessageError] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    trouble: dict[tuple[str, str], DuesweepError] = field(default_factory=dict)
    delivered: list[tuple[str, list[str]]] = field(default_factory=list)
    deferred: list[tuple[str, list[str]]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    on_step: Callable[[str], object] = str
    _unanswered: list[str] = field(default_factory=list)

    def resolve(self, address: str | None) -> str:
        name = address or "own"
        self._meet("resolve", name)
        return name

    def longest_delay(self, destination: Destination) -> int:  # noqa: ARG002 - the contract's
        return self.longest

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        self._meet("deliver", str(destination))
        return self._take(self.delivered, destination, messages)

    def defer(
        self,
        destination: Destination,
        messages: Sequence[Message],
        clock: StoreClock,  # noqa: ARG002 - the contract's
    ) -> dict[str, MessageError]:
        self._meet("defer", str(destination))
        return self._take(self.deferred, destination, messages)

    def confirm(self, seconds: float) -> Confirmation:
        self.on_step("confirm")
        self.waited.append(seconds)
        asked, self._unanswered = self._unanswered, []
        return Confirmation(
            {key: self.late[key] for key in asked if key in self.late},
            frozenset(key for key in asked if key in self.silent),
        )

    def commit(self) -> None:
        """Nothing to do."""

    def rollback(self) -> None:
        """Nothing to do."""

    def _meet(self, step: str, name: str) -> None:
        self.on_step(step)
        error = self.trouble.get((step, name))
        if error is not None:
            raise error

    def _take(
        self,
        asked: list[tuple[str, list[str]]],
        destination: Destination,
        messages: Sequence[Message],
    ) -> dict[str, MessageError]:
        keys = [message.key for message in messages]
        asked.append((str(destination), keys))
        self._unanswered += keys
        return {}
