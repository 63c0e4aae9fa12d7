"""How a command is declared: groups of options, its sentence if it is interrupted, its result; and
the dialogue before a change.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from duesweep.cli.output import ended_with
from duesweep.cli.signals import CHANGES_STAY, stop_on_signals
from duesweep.core import logs
from duesweep.core.change import DueSpan, MessageFilter
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    ExitCode,
    is_utf8,
    make_printable,
    shorten,
    worst,
)
from duesweep.core.passing import passing_line
from duesweep.core.result import exit_code_of
from duesweep.core.times import Moment, parse_moment
from duesweep.report.document import whole
from duesweep.report.tables import print_blocks
from duesweep.report.text import Block, Line, Note
from duesweep.report.views import messages as views

if TYPE_CHECKING:
    from duesweep.config import Config
    from duesweep.operations.command import Changed, Chosen
    from duesweep.operations.duesweep import Duesweep

# The sentences of a command that is interrupted or terminated.
NOTHING = "nothing was changed"
CHANGES = (
    "its committed changes stay, and the next sweep or command writes them to the ledger's "
    "`changes`; look there before you run it again"
)
AGAIN = "it may be done in part; run it again, which does no harm"

_MAY_BE_SECRET = re.compile(r"[^=]*(dsn|url|password|pwd|secret|token)\s*=", re.IGNORECASE)
_YES = {"y", "yes"}


def group(text: str) -> typer.Typer:
    """A command that has commands; `text` is its help."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=text)


class Printed(NamedTuple):
    """The result of a command: a value with the names of its JSON document, and the text
    of it.
    """

    value: object
    blocks: Iterable[Block]

    def print(self, *, as_json: bool) -> int:
        code = exit_code_of(self.value)
        with ended_with(code):
            if as_json:
                print(json.dumps(whole(self.value)), flush=True)
            print_blocks(self.blocks, as_json=as_json)
        return code


_Ended = TypeVar("_Ended", bound="Printed | int")


@dataclass(frozen=True, slots=True)
class About:
    """The facts of a command that does not end by itself: `ending` is the sentence after an
    interruption; `failed` makes the rest of its document then, except `exit_code` and `error`;
    None: it prints no document.
    """

    ending: str
    failed: Callable[[], dict[str, Any]] | None

    @classmethod
    def of(cls, command: Any, arguments: Sequence[str]) -> "About | None":
        """The facts of the command that these arguments give to an application."""
        for word in arguments:
            inner = getattr(command, "commands", {}).get(word)
            if inner is None:
                break
            command = inner
        about: About | None = vars(getattr(command, "callback", None) or cls).get("_about")
        return about


def command(
    app: typer.Typer,
    name: str,
    *,
    ending: str,
    short: str | None = None,
    document: Callable[[], dict[str, Any]] | None = dict,
    has_steps: bool = False,
) -> Callable[[Callable[..., _Ended]], Callable[..., _Ended]]:
    """Add a function to the application as a command. An argument whose type is a dataclass is a
    group of options: each of its fields becomes one; then `--json` comes last. The result is
    printed as text or as JSON; of a command that prints by itself it is the exit code. For `ending`
    and `document` see `About`. `has_steps`: it may take long, and a terminal shows its current
    step.
    """

    def register(run: Callable[..., _Ended]) -> Callable[..., _Ended]:
        parameters, groups = _expand(run)

        @wraps(run)
        def called(**options: Any) -> int:
            _refuse_other_encodings(options.values())
            as_json = options.get("as_json", False)
            made = {
                argument: group(**{each.name: options.pop(each.name) for each in fields(group)})
                for argument, group in groups.items()
            }
            with passing_line(logs.current_step) if has_steps else nullcontext():
                result = run(**options, **made)
                # Some are made of a lazy sequence of blocks.
                return result if isinstance(result, int) else result.print(as_json=as_json)

        # As typer reads them: `wraps` has set the ones of `run`.
        vars(called)["__signature__"] = inspect.Signature(parameters)
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(called)["_about"] = About(ending, document)
        app.command(name, short_help=short)(called)
        return run

    return register


def _expand(run: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters of a command, and its groups of options by their arguments."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for one in inspect.signature(run, eval_str=True).parameters.values():
        if not (isinstance(one.annotation, type) and is_dataclass(one.annotation)):
            parameters.append(one)
            continue
        groups[one.name] = one.annotation
        hints = get_type_hints(one.annotation, include_extras=True)
        parameters += [
            inspect.Parameter(
                each.name, one.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
            )
            for each in fields(one.annotation)
        ]
    return sorted(parameters, key=lambda one: bool(groups) and one.name == "as_json"), groups


def _refuse_other_encodings(options: Iterable[object]) -> None:
    """Raise `ConfigError` for a text that no database can hold. A path may have any bytes."""
    for option in options:
        for text in option if isinstance(option, list | tuple) else [option]:
            if isinstance(text, str) and not is_utf8(text):
                raise ConfigError(
                    f"{make_printable(shorten(text))} is not UTF-8",
                    advice="give it in UTF-8: set your terminal or the script to it",
                )


def _refuse_passwords(settings: Sequence[str] | None) -> Sequence[str] | None:
    """Raise `ConfigError` for a password, since all users of a machine see its command lines."""
    given = [setting for setting in settings or () if _MAY_BE_SECRET.match(setting)]
    if given:
        # Only now: it loads pydantic, which the help does without.
        from duesweep.config import holds_password  # noqa: PLC0415

        for setting in filter(holds_password, given):
            path = setting.partition("=")[0].strip()
            variable = f"DUESWEEP_{path.upper().replace('.', '__')}"
            raise ConfigError(
                f"--set {path} has a password, which every user of this machine can see",
                advice=f"set {variable} in the environment, and change the password",
            )
    return settings


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="TOML file; default: duesweep.toml if it exists."
    ),
]
EndpointName = Annotated[
    str | None,
    typer.Option(
        "--endpoint", metavar="NAME", help="The endpoint, if the configuration has several."
    ),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="TOML file, or a folder of them; may be repeated; default: duesweep.toml if it "
        "exists.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="A setting that overrides file and environment. Not for passwords.",
        callback=_refuse_passwords,
    ),
]
PrintSql = Annotated[
    bool, typer.Option("--print-sql", help="Print the SQL statements without connecting.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Connection = Annotated[
    str | None, typer.Option(help="The NAME of a [queues.NAME] section; default: default.")
]
Destination = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="The destination; * stands for any text."),
]
MessageType = Annotated[
    str | None,
    typer.Option("--type", metavar="PATTERN", help="The message type; * stands for any text."),
]
ScanLimit = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Read the headers of at most N messages."),
]


@dataclass(frozen=True, slots=True)
class Configured:
    """Which configuration."""

    config: ConfigFile = None
    endpoint: EndpointName = None
    settings: Overrides = None

    def loaded(self) -> "Config":
        from duesweep import config as configuration  # noqa: PLC0415 - loads pydantic

        return configuration.load(self.config, self.settings or [], self.endpoint)


@dataclass(frozen=True, slots=True)
class Common(Configured):
    """Which configuration, and how to print."""

    as_json: AsJson = False

    def duesweep(self) -> "Duesweep":
        from duesweep.operations.duesweep import Duesweep  # noqa: PLC0415 - loads the pipeline

        return Duesweep(self.loaded())

    def print(self, blocks: Iterable[Block]) -> None:
        """Print the text before the result."""
        print_blocks(blocks, as_json=self.as_json)


@dataclass(frozen=True, slots=True)
class Several:
    """Which configurations, of one endpoint or of several, and how to print."""

    config: ConfigFiles = None
    endpoint: EndpointName = None
    settings: Overrides = None
    as_json: AsJson = False

    def each(self, do: Callable[["Duesweep"], Printed], heading: str = "== ") -> Printed:
        """Do it for each endpoint, one after another. An error of one is reported, and the
        others have their turn. Of several, the JSON is one document.
        """
        from duesweep import config as configuration  # noqa: PLC0415 - loads pydantic
        from duesweep.operations.duesweep import Duesweep  # noqa: PLC0415 - loads the pipeline

        overrides = self.settings or []
        found = configuration.settings_of(self.config or [], self.endpoint)
        if len(found) == 1:
            return do(Duesweep(configuration.load(found[0], overrides)))
        sources: list[dict[str, Any]] = []
        for one in found:
            if not self.as_json:
                print_blocks([Line(f"{heading}{one.label}")])
            document: dict[str, Any]
            try:
                value, blocks = do(Duesweep(configuration.load(one, overrides)))
                print_blocks(blocks, as_json=self.as_json)
                document = whole(value)
            except DuesweepError as error:
                lines = [problem.sentences for problem in error.problems]
                document = {"exit_code": int(exit_code_of(error)), "error": "\n".join(lines)}
                notes = [Note(f"{one.label}: {line}", with_json=True) for line in lines]
                print_blocks(notes, as_json=self.as_json)
            sources.append({"configuration": one.label} | document)
        code = worst(each["exit_code"] for each in sources)
        return Printed({"exit_code": code, "sources": sources}, ())

    def print(self, blocks: Iterable[Block]) -> None:
        """Print the text before the result."""
        print_blocks(blocks, as_json=self.as_json)


@dataclass(frozen=True, slots=True)
class Which:
    """The choice of waiting messages. All conditions have to hold."""

    destination: Destination = None
    message_type: MessageType = None
    message_id: Annotated[
        list[str] | None,
        typer.Option("--message-id", metavar="ID", help="A message id; may be repeated."),
    ] = None
    saga_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The saga that sent or requested the message.")
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=PATTERN",
            help="A header's value; * stands for any text. If repeated, all must match.",
        ),
    ] = None
    due_after: Annotated[
        Moment | None,
        typer.Option(
            parser=parse_moment,
            metavar="TIME",
            help="Due at this time or later: 2026-12-01T08:00:00Z, +2h or -1d.",
        ),
    ] = None
    due_before: Annotated[
        Moment | None,
        typer.Option(parser=parse_moment, metavar="TIME", help="Due before this time."),
    ] = None

    def filter(
        self, keys: Sequence[str] = (), *, is_failing: bool = False
    ) -> Callable[[datetime], MessageFilter]:
        """The filter at the server's time, also with `keys`. Raises `ConfigError` for a
        header without a pattern: before anything is connected to.
        """
        headers = tuple(map(_header, self.header or ()))

        def at(now: datetime) -> MessageFilter:
            return MessageFilter(
                keys=tuple(keys),
                message_ids=tuple(self.message_id or ()),
                destination=self.destination,
                message_type=self.message_type,
                saga_id=self.saga_id,
                headers=headers,
                due=self._span(now),
                is_failing=is_failing,
            )

        return at

    def _span(self, now: datetime) -> DueSpan:
        start = None if self.due_after is None else self.due_after.at(now)
        end = None if self.due_before is None else self.due_before.at(now)
        if start is not None and end is not None and start >= end:
            raise ConfigError(
                f"No time is after {start.isoformat()} and before {end.isoformat()}",
                advice="exchange --due-after and --due-before",
            )
        return DueSpan(start, end)


def _header(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not name:
        raise ConfigError(
            f"--header {text!r} is not of the form NAME=PATTERN",
            advice="write it as in --header Colour=bl*",
        )
    return name, pattern


@dataclass(frozen=True, slots=True)
class Act:
    """Why something is changed, and whether to ask before."""

    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The reason; required for more than one message."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Change messages without asking.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the messages; change nothing.")
    ] = False

    def on(
        self,
        common: Common,
        chosen: "Chosen",
        show: Iterable[Block],
        do: "Callable[..., Changed]",
    ) -> Printed:
        """The dialogue before a change, and the change, which `do` does until the first signal,
        with a line that counts. `show` is the choice.
        """
        if self.dry_run:
            shown = show if chosen.would_change else ()
            return Printed(chosen, chain(shown, views.would_change(chosen)))
        if not self._agrees(common, chosen, show):
            declined = {"exit_code": ExitCode.MESSAGES_FAILED, "error": NOTHING}
            return Printed(declined, [Note(NOTHING, with_json=True)])
        from duesweep.operations.duesweep import Stop  # noqa: PLC0415 - loads the pipeline

        with stop_on_signals(stop := Stop(), CHANGES_STAY), passing_line(logs.current_step):
            changed = do(chosen, reason=self.reason, stop=stop)
        return Printed(changed, views.changed(changed))

    def _agrees(self, common: Common, chosen: "Chosen", show: Iterable[Block]) -> bool:
        """Whether the change is meant: it is if each message is named, or with `--yes`; others are
        shown the choice, and asked.
        """
        from duesweep.operations.command import require_reason  # noqa: PLC0415 - loads the pipeline

        require_reason(self.reason, chosen.would_change)
        if self.yes or chosen.is_exact or not chosen.would_change:
            return True
        common.print(show)
        return confirm(views.question(chosen))


def confirm(question: str) -> bool:
    """Whether the person at the terminal says yes. Raises `ConfigError` without one."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{question}: this needs your answer, and there is no terminal",
            advice="add --yes to do it without being asked, or --dry-run to see its effect",
        )
    print(make_printable(f"{question}? [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in _YES
