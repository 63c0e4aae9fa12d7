"""The account of a slice: what became of each message that it was planned with.

`planned = claimed + skipped + gone + later + left`. Each number is counted where it is known, and
never inferred from the others; what is missing from the sum is `unexplained`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class SliceAccount:
    """What one run of a task did with the `given` claim keys that it read.

    `claimed` were delivered, failed or exhausted; `skipped` were locked by others; `gone` were not
    in the store any more; `later` were there, but not due, or in back-off; `left` were not
    reached, or their destination took nothing.
    """

    given: int = 0
    claimed: int = 0
    skipped: int = 0
    gone: int = 0
    later: int = 0
    left: int = 0

    def __add__(self, more: "SliceAccount") -> "SliceAccount":
        return SliceAccount(
            *(getattr(self, f.name) + getattr(more, f.name) for f in fields(SliceAccount))
        )


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """The end of a slice as one run of its task journalled it; `reason` None: it is complete."""

    account: SliceAccount
    reason: str | None


@dataclass(frozen=True, slots=True)
class SweepAccount:
    """What became of everything that a sweep found: `found` is the sum of the five after it, and of
    `unexplained`, which is 0 where the account is closed. `reason` is why messages are left.
    """

    found: int = 0
    claimed: int = 0
    skipped: int = 0
    gone: int = 0
    later: int = 0
    left: int = 0
    unexplained: int = 0
    is_complete: bool = True
    reason: str | None = None


CUT = "A slice ended without a word: its task was killed, or could not reach the store any more"


def slice_account(planned: int, claimed: int, ends: Sequence[SliceEnd]) -> SweepAccount:
    """The account of one slice, from the plan, from the batches that committed (`claimed`) and from
    the ends that runs of its task journalled, oldest first.

    A task may run more than once. The last run that is complete has seen all of the slice that was
    left then; without one, whatever nobody saw is left.
    """
    complete = [end.account for end in ends if end.reason is None]
    if not complete:
        end = ends[-1] if ends else SliceEnd(SliceAccount(), CUT)
        return _closed(planned, claimed, replace(end.account, left=planned), end.reason)
    last = complete[-1]
    # What other runs of the task claimed is known to the journal, whatever this one saw of it.
    by_others = max(0, claimed - last.claimed)
    # The read was whole, so what it did not find had left between the plan's count and it.
    before = max(0, planned - last.given - by_others)
    return _closed(max(planned, last.given), claimed, replace(last, gone=last.gone + before), None)


def total(accounts: Iterable[SweepAccount]) -> SweepAccount:
    """The account of a sweep from those of its slices."""
    listed = list(accounts)
    return SweepAccount(
        found=sum(a.found for a in listed),
        claimed=sum(a.claimed for a in listed),
        skipped=sum(a.skipped for a in listed),
        gone=sum(a.gone for a in listed),
        later=sum(a.later for a in listed),
        left=sum(a.left for a in listed),
        unexplained=sum(a.unexplained for a in listed),
        is_complete=all(a.is_complete for a in listed),
        reason=min((a.reason for a in listed if a.reason is not None), default=None),
    )


def _closed(found: int, claimed: int, seen: SliceAccount, reason: str | None) -> SweepAccount:
    """Close an account: the reasons for not claiming, at most as many as were not claimed.

    Two runs of one task can see the same message, one as gone or locked while the other claims it.
    So what was seen otherwise gives way to what was claimed.
    """
    found = max(found, claimed)
    rest = found - claimed
    later = min(seen.later, rest)
    skipped = min(seen.skipped, rest - later)
    gone = min(seen.gone, rest - later - skipped)
    left = min(seen.left, rest - later - skipped - gone)
    unexplained = rest - later - skipped - gone - left
    return SweepAccount(
        found, claimed, skipped, gone, later, left, unexplained, reason is None, reason
    )
