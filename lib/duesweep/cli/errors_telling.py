"""What `duesweep errors replay` and `duesweep errors discard` tell."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.cli.unknown import unknown_document
from duesweep.core.change import CommandName
from duesweep.core.errors import ExitCode, make_printable
from duesweep.core.exhausted import ErrorFilter, ErrorGroups
from duesweep.core.routing import UnknownDestination
from duesweep.exhausted import ExhaustedMessages
from duesweep.operations.change import CommandReport
from duesweep.operations.replay import Discard, Found, Replay
from duesweep.report import exhausted as report
from duesweep.report.quantities import count_text
from duesweep.report.tables import print_table

_SHOWN_FAILURES = 20


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """`reason`: why; None: not given. `yes`: do not ask."""

    reason: str | None = None
    yes: bool = False
    is_dry_run: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """What a command does. `done` is the word for it, `question` is asked first."""

    name: CommandName
    done: str
    question: str
    work: Replay | Discard


@dataclass(frozen=True, slots=True)
class Named:
    """What ids lead to. `is_exact`: each to one error at most. `is_whole`: each to one that is to
    be done. `texts` tell of the others.
    """

    is_exact: bool
    is_whole: bool
    texts: Sequence[str]

    @classmethod
    def of(cls, found: Found, ids: Sequence[str]) -> "Named":
        """What these ids lead to."""
        texts: list[str] = []
        is_exact, is_whole = bool(ids), True
        for each in ids:
            named = ErrorFilter(ids=(each,))
            rows = [row for row in found.rows.values() if named.matches(row)]
            if len(rows) > 1:
                is_exact = False
                texts.append(f"{each} means {len(rows)} errors")
            elif not rows:
                is_whole = False
                texts += _done_texts(found, each)
        return cls(is_exact, is_whole, texts)

    def tell(self) -> None:
        """Tell of ids that do not lead to one error."""
        for text in self.texts:
            _tell(text)


def _done_texts(found: Found, wanted: str) -> list[str]:
    rows = found.done_rows.values()
    done = [row.id for row in rows if ErrorFilter(ids=(wanted,)).matches(row)]
    if not done:
        return [f"the ledger has no error with message id or key {wanted}"]
    told = [report.fate_text(error, found.done[error]) for error in done]
    return [f"{each}; `errors replay --again` replays it once more" for each in told]


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended. `done` None: it did nothing, because there was nothing to do, it was a
    dry run, or somebody said no. `unknown`: the filter's destination, if no error is for it.
    """

    source: str
    found: Found
    act: Act
    named: Named
    done: CommandReport | None = None
    is_dry_run: bool = False
    is_declined: bool = False
    unknown: UnknownDestination | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Whether all was done that was asked."""
        done, account = self.done, self.act.work.account
        if done is not None and done.ledger_error:
            return ExitCode.WORK_LEFT
        was_overtaken = self.named.is_exact and account.done_before
        if self.is_declined or not self.named.is_whole or account.failed or was_overtaken:
            return ExitCode.MESSAGES_FAILED
        return ExitCode.MESSAGES_FAILED if done is not None and done.is_stopped else ExitCode.DONE

    def print_all(self, *, as_json: bool) -> None:
        """Print the result, and on stderr what was not done."""
        print(json.dumps(self._document()) if as_json else make_printable(self._sentence()))
        for text in self._notices():
            _tell(text)

    def _sentence(self) -> str:
        if self.is_dry_run:
            count = count_text(len(self.found.rows), "error")
            return f"{self.source}: {count} would be {self.act.done}."
        changed = 0 if self.done is None else self.done.tally.changed
        text = f"{self.source}: {self.act.done} {count_text(changed, 'error')}"
        return f"{text}, command {self.done.command_id}." if self.done else f"{text}."

    def _notices(self) -> Iterator[str]:
        account, done = self.act.work.account, self.done
        # Of those that were named it was told before.
        skipped = account.done_before + (0 if self.named.texts else len(self.found.done_rows))
        if skipped:
            yield f"left out {count_text(skipped, 'error')}: replayed or discarded before"
        for failure in account.failures[:_SHOWN_FAILURES]:
            yield f"{failure.error.key} was not {self.act.done}: {failure.reason}"
        if account.failed > _SHOWN_FAILURES:
            yield f"{account.failed:,} were not {self.act.done} in all; --json has more reasons"
        if done is not None and done.is_stopped:
            yield "stopped between two batches; the same command does the rest"
        if done is not None and done.ledger_error:
            yield done.ledger_error

    def _document(self) -> dict[str, Any]:
        account, done = self.act.work.account, self.done
        return {
            "command": self.act.name.value,
            "source": self.source,
            "command_id": None if done is None else done.command_id,
            "chosen": len(self.found.rows),
            self.act.done: 0 if done is None else done.tally.changed,
            "done_before": len(self.found.done_rows) + account.done_before,
            "failed": account.failed,
            "failures": [
                {"key": f.error.key, "sweep_id": f.error.sweep_id, "reason": f.reason}
                for f in account.failures
            ],
            "is_stopped": done is not None and done.is_stopped,
            "ledger_error": None if done is None else done.ledger_error,
            "unknown_destination": unknown_document(self.unknown),
            "exit_code": int(self.exit_code),
        }


def warn_of_copies(messages: ExhaustedMessages, found: Found) -> None:
    """Tell of copies in error queues, from where somebody may replay errors, too."""
    if found.rows:
        for queue, count in sorted(messages.in_error_queues(found.rows).items()):
            _tell(
                f"the error queue {queue} has got copies of {count_text(count, 'error')}: whoever "
                "returns them from there doubles them"
            )


def print_groups(found: Found) -> None:
    """Print what would be done, by groups."""
    groups = ErrorGroups()
    for error, row in found.rows.items():
        fate = found.done.get(error)
        groups.add(row, None if fate is None else fate.kind)
    print_table(report.GROUP_COLUMNS, [report.group_row(group) for group in groups.sorted()])


def _tell(text: str) -> None:
    print(make_printable(f"duesweep: {text}"), file=sys.stderr)
