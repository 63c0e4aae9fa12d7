"""What a command would change, and what it changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.core.change import CommandName
from duesweep.report.quantities import count_text
from duesweep.report.tables import Column, print_table
from duesweep.steer import CommandReport

_DESTINATIONS = (Column("destination"), Column("messages", is_number=True))
_MOST_DESTINATIONS = 10


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of a command: what it has `done` with a message, and why one is not there."""

    command: CommandName
    done: str
    gone: str = "not in the store"


def print_destinations(destinations: Counter[str]) -> None:
    """Where the messages would have gone, the commonest first."""
    shown = destinations.most_common(_MOST_DESTINATIONS)
    rows = [[name, f"{count:,}"] for name, count in shown]
    others = destinations.total() - sum(count for _, count in shown)
    print_table(_DESTINATIONS, [*rows, ["others", f"{others:,}"]] if others else rows)
    print(flush=True)


def sentences(report: CommandReport, words: Words, asked: int) -> Sequence[str]:
    """What a command did, and then why it did not do the rest. It was `asked` for so many."""
    tally, done = report.tally, words.done
    told = [f"{report.source}: {done} {count_text(tally.changed, 'message')}."]
    if tally.changed:
        told[0] = f"{told[0]} Command {report.command_id}."
    if tally.held:
        told.append(
            f"{count_text(tally.held, 'message')} not {done}: a sweep or another session holds "
            "them now. If they still wait afterwards, run the command again"
        )
    if tally.gone:
        told.append(gone_sentence(words, tally.gone))
    if tally.refused:
        told.append(
            f"{count_text(tally.refused, 'message')} not {done}: they have no Due to start from; "
            "set one with --to"
        )
    left = asked - tally.changed - tally.held - tally.gone - tally.refused
    if report.is_stopped:
        told.append(f"stopped; {count_text(left, 'message')} not looked at")
    if report.ledger_error is not None:
        told.append(report.ledger_error)
    return told


def gone_sentence(words: Words, messages: int) -> str:
    """Why so many messages were left out."""
    return f"{count_text(messages, 'message')} not {words.done}: {words.gone}"


def report_document(report: CommandReport, words: Words, exit_code: int) -> Mapping[str, Any]:
    """The same for JSON."""
    tally = report.tally
    return {
        "command": words.command.value,
        "command_id": report.command_id,
        "source": report.source,
        "changed": tally.changed,
        "held": tally.held,
        "gone": tally.gone,
        "refused": tally.refused,
        "is_stopped": report.is_stopped,
        "ledger_error": report.ledger_error,
        "exit_code": int(exit_code),
        "error": report.ledger_error,
    }
