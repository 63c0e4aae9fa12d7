"""Spans: what took how long, and which messages it was about. Without tracing, nothing is kept."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from duesweep.core.message import Message

Attributes = Mapping[str, str | int]


class Tracing(Protocol):
    """A plain value: tasks get one that goes on from the driver's. It never raises."""

    def recording(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:
        """A span that has those of its block below it, and sends them all at its end."""
        ...

    def span(
        self, name: str, attributes: Attributes, messages: Iterable[Message] = ()
    ) -> AbstractContextManager[None]:
        """A span below the one that is open in this thread, with links to the spans in which these
        messages were sent.
        """
        ...

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span that is open in this thread."""
        ...

    def for_tasks(self) -> "Tracing":
        """What records below the span that is open in this thread, in another process too."""
        ...


@dataclass(frozen=True, slots=True)
class NoTracing:
    """Records nothing."""

    def recording(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def span(
        self,
        name: str,  # noqa: ARG002
        attributes: Attributes,  # noqa: ARG002
        messages: Iterable[Message] = (),  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def note(self, attributes: Attributes) -> None:
        """Nothing."""

    def for_tasks(self) -> Tracing:
        return self
