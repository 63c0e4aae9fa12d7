"""What the commands share that change messages: who, why, whether to go on, and what came of it."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duesweep.cli.confirm import confirm
from duesweep.core.change import CommandName
from duesweep.core.errors import ExitCode, make_printable
from duesweep.report.changes import Words, gone_sentence, report_document, sentences
from duesweep.report.quantities import count_text
from duesweep.steer import CommandReport


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """`reason`: why; None: not given. `yes`: do not ask."""

    reason: str | None = None
    yes: bool = False
    is_dry_run: bool = False
    as_json: bool = False


def may_go_on(options: CommandOptions, name: CommandName, messages: int) -> bool:
    """Whether to change so many messages: with `yes`, or if the person at the terminal says so."""
    if options.yes or confirm(f"{name.capitalize()} {count_text(messages, 'message')}"):
        return True
    print("duesweep: nothing was changed", file=sys.stderr)
    return False


def print_nothing(
    source: str,
    words: Words,
    asked: int,
    options: CommandOptions,
    *,
    unknown: Mapping[str, Any] | None = None,
) -> int:
    """Tell that no message was found, where `asked` were asked for by name. `unknown`: a
    destination that no message is for, for JSON.
    """
    code = ExitCode.MESSAGES_FAILED if asked else ExitCode.DONE
    if options.as_json:
        nothing = {"changed": 0, "held": 0, "gone": asked, "refused": 0, "is_stopped": False}
        ends = {"ledger_error": None, "exit_code": int(code), "error": None}
        unknown_destination = {"unknown_destination": unknown}
        print(
            json.dumps(
                {"command": words.command.value, "command_id": None, "source": source}
                | nothing
                | ends
                | unknown_destination
            )
        )
    else:
        print(make_printable(f"{source}: {words.done} 0 messages."))
        if asked:
            print(f"duesweep: {gone_sentence(words, asked)}", file=sys.stderr)
    return code


def finish(report: CommandReport, words: Words, asked: int, options: CommandOptions) -> int:
    """Tell what a command did, and return its exit code. `asked`: how many messages it was to
    change.
    """
    if report.ledger_error is not None:
        code = ExitCode.WORK_LEFT
    elif report.tally.changed < asked:
        code = ExitCode.MESSAGES_FAILED
    else:
        code = ExitCode.DONE
    if options.as_json:
        print(json.dumps(report_document(report, words, code)))
        return code
    done_text, *others = sentences(report, words, asked)
    print(make_printable(done_text))
    for text in others:
        print(make_printable(f"duesweep: {text}"), file=sys.stderr)
    return code
