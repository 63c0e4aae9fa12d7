"""Chooses waiting messages by a filter: for commands that show them, and for those that change
them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from duesweep.core.change import DueSpan, MessageFilter, WaitingMessage, spelled_alike
from duesweep.core.errors import StoreError
from duesweep.stores.base import OperatorDriver, Store, operators_of

Fits = Callable[[WaitingMessage], bool]


class Choice:
    """The messages that a filter means, in pages, those with the earliest Due first; it is read
    once. `looked_at` is how many messages were looked at so far, and `destinations` where they go.
    `is_cut`: there are more, but it stopped at its limit.
    """

    def __init__(
        self,
        pages: Iterator[Sequence[WaitingMessage]],
        fits: Fits,
        destinations: Collection[str] = (),
        most: int | None = None,
    ) -> None:
        self.looked_at = 0
        self.destinations = destinations
        self.is_cut = False
        self._pages = pages
        self._fits = fits
        self._most = most

    def __iter__(self) -> Iterator[list[WaitingMessage]]:
        """The messages that fit; a page is empty where none of many does."""
        for page in self._pages:
            left = len(page) if self._most is None else self._most - self.looked_at
            self.is_cut = len(page) > left
            self.looked_at += min(len(page), left)
            yield [one for one in page[:left] if self._fits(one)]
            if self.is_cut:
                return


@contextmanager
def choose(
    session: OperatorDriver, wanted: MessageFilter, own_queue: str, scan_limit: int
) -> Iterator[Choice]:
    """Open the choice. Messages whose keys are known are found by them; `scan_limit` is for filters
    that have to read headers. `own_queue` is the name that stands for the endpoint's own queue.
    """

    destinations: set[str] = set()

    def fits(waiting: WaitingMessage) -> bool:
        destination = waiting.destination(own_queue)
        if destination is not None:
            destinations.add(destination)
        return wanted.matches(waiting, own_queue)

    if wanted.keys:
        found = [one for one in find_by_keys(session, wanted.keys) if _is_in(one, wanted.due)]
        yield Choice(iter([found]), fits, destinations)
        return
    with session.look(wanted.due) as pages:
        yield Choice(pages, fits, destinations, scan_limit if wanted.reads_headers else None)


def find_by_keys(
    session: OperatorDriver, keys: Sequence[str], *, with_body: bool = False
) -> Sequence[WaitingMessage]:
    """The messages with these keys, however the keys are spelled."""
    found = {one.lock_key: one for one in session.find(keys, with_body=with_body)}
    unknown = set(keys).difference(one.message.key for one in found.values())
    if others := sorted({spelled_alike(key) for key in unknown}.difference(keys)):
        found |= {one.lock_key: one for one in session.find(others, with_body=with_body)}
    return list(found.values())


@contextmanager
def open_look(store: Store) -> Iterator[OperatorDriver]:
    """A session that shows what waits. Raises `ConfigError` if the store has none, and in place of
    an error of the store if tables or rights are not as a sweep needs them. They are not checked
    before: to look needs fewer rights.
    """
    with operators_of(store, "to show messages").open_driver() as session:
        try:
            yield session
        except StoreError as error:
            if not error.transient:
                session.check()
            raise


def _is_in(waiting: WaitingMessage, span: DueSpan) -> bool:
    if waiting.due is None:
        return span.end is None
    starts = span.start is None or waiting.due >= span.start
    return starts and (span.end is None or waiting.due < span.end)
