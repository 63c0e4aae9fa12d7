"""The errors of duesweep, by whose fault they are, and how texts of others are shown.

Two families, never mixed: a :class:`MessageError` is one message's own fault and costs that
message an attempt; every other :class:`DuesweepError` is the fault of a setting or a service and
costs no message an attempt.
"""

import copyreg
import errno
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

# A sentence of ours without the names in it is far shorter.
_LONGEST = 500
_DESCRIPTOR_ERRNOS = {errno.EMFILE, errno.ENFILE}
_TOO_MANY_FILES = re.compile("Too many open files")
_TAIL = 100
# Characters that a terminal obeys, does not show, or shows in another order: control characters
# (but a tab), format characters of Unicode, line separators, and halves of surrogate
# pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# A cause may quote a whole message.
_LONGEST_STACK = 20_000


class ExitCode(IntEnum):
    """The exit codes of the process, for a shell, cron or Databricks."""

    DONE = 0
    UNEXPECTED = 1
    CONFIGURATION = 2
    MESSAGES_FAILED = 3
    WORK_LEFT = 4
    LATE = 5


# The worst of several last: a fault that only a person can correct is worse than one that may pass.
_FROM_BAD_TO_WORSE = (
    *(ExitCode.DONE, ExitCode.LATE, ExitCode.MESSAGES_FAILED, ExitCode.WORK_LEFT),
    *(ExitCode.CONFIGURATION, ExitCode.UNEXPECTED),
)


def worst(codes: Iterable[int]) -> ExitCode:
    """The one exit code of several."""
    return max(map(ExitCode, codes), key=_FROM_BAD_TO_WORSE.index, default=ExitCode.DONE)


@dataclass(frozen=True, slots=True)
class Problem:
    """`text` says what happened, and names the object; `advice` says what to do, None: no action.

    As text it is one sentence: `<text>; <advice>`.
    """

    text: str
    advice: str | None = None

    def __str__(self) -> str:
        return self.text if self.advice is None else f"{self.text}; {self.advice}"

    @property
    def sentences(self) -> str:
        """Text and advice on their own line, as in `There is no queue Billing. Create it`. The
        line has no full stop at its end, where a statement or an address to copy may be.
        """
        if self.advice is None:
            return self.text
        stop = "" if self.text.endswith((".", "?", "!", ":")) else "."
        return f"{self.text}{stop} {capitalized(self.advice)}"


def capitalized(text: str) -> str:
    """`text` with a capital first letter."""
    return text[:1].upper() + text[1:]


class DuesweepError(Exception):
    """Base of all errors that duesweep raises on purpose.

    `text` says what happened, and names the object; `advice` says what to do. `str` gives both. All
    fields survive pickling: tasks send errors to the driver.

    `stored_name` is what journal, ledger and fault headers call the class. It has to stay as it is:
    groups of errors are found by it. So a class of this module that moves, or is renamed, has to
    say which name it had, and one of another module which name it has.
    """

    stored_name = "duesweep.errors.DuesweepError"
    advice: str | None = None

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__ and "stored_name" not in vars(cls):
            cls.stored_name = f"duesweep.errors.{cls.__name__}"

    def __init__(self, text: str, *, advice: str | None = None) -> None:
        super().__init__(text)
        self.advice = advice

    @classmethod
    def of(cls, problem: Problem, **more: Any) -> Self:
        """The error of a problem; `more` are arguments of the class."""
        return cls(problem.text, advice=problem.advice, **more)

    @property
    def text(self) -> str:
        """What happened, without the advice."""
        return str(self.args[0])

    @property
    def problem(self) -> Problem:
        """Text and advice as a value."""
        return Problem(self.text, self.advice)

    @property
    def problems(self) -> Sequence[Problem]:
        """All that is wrong, the cause first."""
        return [self.problem]

    def __str__(self) -> str:
        return str(self.problem)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args` alone, and some classes need keyword arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(DuesweepError):
    """The configuration, or the setup of a database or a broker, does not allow a sweep."""

    _problems: Sequence[Problem] = ()

    @classmethod
    def of_all(cls, problems: Sequence[Problem]) -> Self:
        """One error of several problems, the cause first."""
        if len(problems) == 1:
            return cls.of(problems[0])
        error = cls("; ".join(map(str, problems)))
        error._problems = problems
        return error

    @property
    def problems(self) -> Sequence[Problem]:
        return self._problems or super().problems


def not_supported(wanted: str) -> ConfigError:
    """The error of a store that leaves the contract's answer as it is."""
    return ConfigError(
        f"{wanted} is not supported by this store",
        advice="its class can add it (docs/stores.md)",
    )


class OdbcDriverError(ConfigError):
    """The ODBC driver for SQL Server is missing on this machine, or cannot be loaded."""


class ServiceError(DuesweepError):
    """A service that duesweep works with failed or is out of reach.

    `transient`: the fault may pass by itself.
    """

    def __init__(self, text: str, *, transient: bool, advice: str | None = None) -> None:
        super().__init__(text, advice=advice)
        self.transient = transient


class StoreError(ServiceError):
    """The store's database failed or is out of reach."""


class QueueError(StoreError):
    """The service behind a queue failed or is out of reach."""


class RefusedStatementError(StoreError):
    """The server refuses a statement, or drops its rows, until a person changes a table."""

    def __init__(self, text: str, *, advice: str | None = None) -> None:
        super().__init__(text, transient=False, advice=advice)


class MissingRightError(RefusedStatementError):
    """The server refused a statement, because this user lacks a right."""


class SilentServiceError(StoreError):
    """The service accepted the request, and did not answer in time. It may still act on it."""


class DestinationError(QueueError):
    """One destination accepts no messages now; the others do. If it is `transient`, its slice tries
    it again; else its messages are left to the next sweep, even if the fault passes as a lock does.
    """

    def __init__(self, text: str, *, transient: bool = True, advice: str | None = None) -> None:
        super().__init__(text, transient=transient, advice=advice)


class TransactionLostError(StoreError):
    """The server rolled back the batch's transaction, with its claim; the session still works.

    `destination_is_at_fault`: the delivery to one destination caused it, and would cause it again.
    """

    def __init__(
        self, text: str, *, destination_is_at_fault: bool = False, advice: str | None = None
    ) -> None:
        super().__init__(text, transient=True, advice=advice)
        self.destination_is_at_fault = destination_is_at_fault


class UnusualBatchError(DuesweepError):
    """Something in this batch is unusual, so it has to be rolled back and run in the careful form.
    It is no message's fault, so no attempt is counted.
    """


class LedgerError(ServiceError):
    """The Delta ledger could not be read or written. The journal keeps its rows until it can."""


class LedgerLockedError(LedgerError):
    """Another process holds a lock that settling needs. `text` says which one, and since when."""

    def __init__(self, text: str) -> None:
        super().__init__(
            text,
            transient=True,
            advice="the journal keeps the rows, and a later sweep writes them to the ledger",
        )


class NothingDueError(LedgerError):
    """Nothing is due, and the journal has rows that cannot be written to the ledger now."""


class SparkError(ServiceError):
    """Spark did not start, or stopped."""


class SweepClosedError(DuesweepError):
    """Another process closed this sweep, so its tasks must stop."""


class SweepStoppedError(DuesweepError):
    """The sweep is to stop, so its tasks begin no other batch. It is no message's fault."""


class MessageError(DuesweepError):
    """One message's own fault, which costs it an attempt. A long text, which quotes the message, is
    shortened: it is written down in several places. `copy_may_pass`: an error queue that refuses
    a copy with this error may take it later.
    """

    copy_may_pass = False

    def __init__(self, text: str, *, advice: str | None = None) -> None:
        super().__init__(shorten(text), advice=advice)


class UnreadableHeadersError(MessageError):
    """The headers do not have the transport's format."""


class UnreadableAddressError(MessageError):
    """The destination cannot be read as an address."""


class QueueNotFoundError(MessageError):
    """There is no queue with the destination's name."""

    copy_may_pass = True


class NotAQueueError(MessageError):
    """The destination is a table, but not a queue table."""


class RefusedMessageError(MessageError):
    """The destination refused this one message."""

    def __init__(
        self, text: str, *, copy_may_pass: bool = False, advice: str | None = None
    ) -> None:
        super().__init__(text, advice=advice)
        self.copy_may_pass = copy_may_pass


def refuse_dropped(table: str, took: int, count: int) -> None:
    """Raise `RefusedMessageError` for a table that took only some of `count` rows, and raised no
    error.
    """
    if took != count:
        raise RefusedMessageError(
            f"{table} took {took} of {count} rows, and raised no error",
            advice="look for a trigger or a rule on it that drops rows",
        )


def may_pass(error: DuesweepError) -> bool:
    """Whether the fault of a service may pass within seconds, so that to try again makes sense.

    Not if the service is silent: it may still do its work, and then do it twice. Not if a
    transaction was lost: it has been tried again several times.
    """
    if isinstance(error, SilentServiceError | TransactionLostError):
        return False
    return isinstance(error, ServiceError) and error.transient


def raise_interruption(error: BaseException) -> None:
    """If a Ctrl-C or a SIGTERM led to `error`, raise that signal's exception instead.

    The JVM may get the same signal. Then PySpark's clean-up finds no JVM, and its error hides the
    signal's exception.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    # An error that one thread raises again for another may be among its own causes.
    while cause is not None and id(cause) not in seen:
        if not isinstance(cause, Exception | GeneratorExit):
            raise cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def type_name(error: BaseException) -> str:
    """The full name of the error's type, as NServiceBus writes it into fault headers. The
    names of duesweep's own types stay as they are.
    """
    kind = type(error)
    # Not an inherited one: a custom store's subclass is another class.
    stored: str | None = vars(kind).get("stored_name")
    return stored or f"{kind.__module__}.{kind.__qualname__}"


def format_stack(error: BaseException) -> str:
    """The stack trace with all causes, as text that any database column can hold; its middle is
    left out if it is very long.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    return make_storable(shorten(text, _LONGEST_STACK))


class UnprintedError(Exception):
    """Standard output was not written. No `OSError`: typer ends a command that raises one for a
    closed pipe, with the code 1. `code` is the exit code of the command; None: it had not ended.
    """

    code: int | None = None


def make_storable(text: str) -> str:
    """`text` without the characters that text columns or UTF-8 cannot hold: NUL, surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8. Python reads bytes of the command line and of the
    environment that are not UTF-8 as halves of surrogate pairs.
    """
    return text.encode("utf-8", "replace").decode() == text


# Libraries report it as an error of the service.
NO_DESCRIPTORS = Problem(
    "this process has no free file descriptor",
    "raise its limit (ulimit -n, or LimitNOFILE= of systemd), or reduce its connections",
)


def lacks_descriptors(error: BaseException) -> bool:
    """Whether an error, or a cause of it, is that this process or machine cannot open more files
    and connections.
    """
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or one in seen:
            continue
        seen.append(one)
        if getattr(one, "errno", None) in _DESCRIPTOR_ERRNOS or _TOO_MANY_FILES.search(str(one)):
            return True
        waiting += [one.__cause__, getattr(one, "reason", None), *one.args]
    return False


def shorten(text: str, longest: int = _LONGEST) -> str:
    """`text`, with its middle left out if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head = longest - _TAIL
    return f"{text[:head]} [{len(text) - longest:,} more characters] {text[-_TAIL:]}"


def make_printable(text: str) -> str:
    """`text` with an escape, such as `\\x1b`, for each character that a terminal obeys or hides.

    Names and texts of others could clear its screen, or pretend to be another text.
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
