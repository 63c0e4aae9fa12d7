"""What can go wrong, by whose fault it is.

Two families, never mixed: a :class:`MessageError` is one message's own fault and costs that
message an attempt; every other :class:`DuesweepError` is the fault of a setting or a service and
costs no message anything.
"""

import traceback
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells the shell, cron or Databricks."""

    DONE = 0
    UNEXPECTED = 1
    CONFIGURATION = 2
    MESSAGES_FAILED = 3
    WORK_LEFT = 4


class DuesweepError(Exception):
    """Base of all errors that duesweep raises on purpose: what happened, to what, what to do."""

    exit_code = ExitCode.UNEXPECTED


class ConfigError(DuesweepError):
    """The configuration, or the database as it was set up, cannot be swept."""

    exit_code = ExitCode.CONFIGURATION


class ServiceError(DuesweepError):
    """Something that duesweep works with failed or is out of reach."""

    def __init__(self, text: str, *, transient: bool) -> None:
        super().__init__(text)
        self.transient = transient

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]
        """A passing fault leaves work for the next sweep; a lasting one is unexpected."""
        return ExitCode.WORK_LEFT if self.transient else ExitCode.UNEXPECTED


class StoreError(ServiceError):
    """The store's database failed or is out of reach."""


class QueueError(StoreError):
    """The service behind a queue failed or is out of reach."""


class DestinationError(QueueError):
    """One destination takes no messages now; the others do."""

    def __init__(self, text: str) -> None:
        super().__init__(text, transient=True)


class TransactionLostError(StoreError):
    """The server rolled the batch's transaction back, claim and all; the session is still good.

    `destination_is_at_fault`: delivering to one destination did it, and would do it again.
    """

    def __init__(self, text: str, *, destination_is_at_fault: bool = False) -> None:
        super().__init__(text, transient=True)
        self.destination_is_at_fault = destination_is_at_fault


class LedgerError(ServiceError):
    """The Delta ledger could not be read or written; the journal keeps what it should have got."""


class SparkError(ServiceError):
    """Spark did not start, or ended."""


class SweepClosedError(DuesweepError):
    """Another process took this sweep for dead and closed it: its tasks must stop."""

    exit_code = ExitCode.WORK_LEFT


class MessageError(DuesweepError):
    """One message's own fault."""

    exit_code = ExitCode.MESSAGES_FAILED


class UnreadableHeadersError(MessageError):
    """The headers are not what the transport writes."""


class UnreadableAddressError(MessageError):
    """The destination is not an address."""


class QueueNotFoundError(MessageError):
    """There is no table of the destination's name."""


class NotAQueueError(MessageError):
    """The destination is a table, but not a queue table."""


class RefusedMessageError(MessageError):
    """The destination refused this one message."""


class DeliveryFailedError(MessageError):
    """Whoever moves messages one by one has counted a failure, and gave no reason."""


def type_name(error: BaseException) -> str:
    """The exception's full type name, as NServiceBus writes it into fault headers."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def stack_of(error: BaseException) -> str:
    """The stack trace with all causes, as text that any database column can hold."""
    return storable("".join(traceback.format_exception(error)).rstrip())


def storable(text: str) -> str:
    """`text` without what a text column or UTF-8 cannot hold: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
