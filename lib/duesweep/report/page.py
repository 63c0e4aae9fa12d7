"""The report: one page of HTML, with all that it needs. It draws the blocks of the commands' text;
what messages and services brought with them is escaped. The style sheet gives the plots' colours,
light or dark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from shutil import copymode
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from duesweep.core.errors import ConfigError, make_printable, shorten
from duesweep.core.quantities import time_text
from duesweep.operations.status import Status, Statuses, Step
from duesweep.report.text import Block, Cell, Line, Note, Row
from duesweep.report.views import status as views

# The room of a plot, and of its bars in it: next to them are the numbers, below them the labels.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 380, 180, 48, 10, 156
# The number of characters of labels that fit into a row, and the width of one.
_MOST_CHARACTERS, _CHARACTER = 42, 6.5
# A notebook has the rest.
_STYLE = (
    ".duesweep td, .duesweep th { text-align: left } .duesweep .n { text-align: right }"
    ".duesweep .red { color: #b3261e } .duesweep .yellow { color: #8a5a00 }"
    ".duesweep .green { color: #1d6b3a }"
)
# Of a cell of a table. Several reasons may be in one.
_LONGEST = 2_000


def render(
    sources: Sequence[Status], made_at: datetime, *, refresh_seconds: int | None = None
) -> str:
    """One document of HTML, with all that it needs. A page that is served says how often it is to
    be asked for again, which is its server's to say to browsers.
    """
    title = sources[0].source if len(sources) == 1 else f"{len(sources)} endpoints"
    return (
        _environment()
        .get_template("page.html")
        .render(
            sources=views.worst_first(sources),
            made_at=made_at,
            title=title,
            refresh_seconds=refresh_seconds,
        )
    )


def draw(blocks: Iterable[Block]) -> str:
    """These blocks as a piece of HTML, for a notebook's page."""
    # A notebook has no second stream for remarks.
    lines = [Line(each.text) if isinstance(each, Note) else each for each in blocks]
    template: Any = _environment().get_template("blocks.html").module
    drawn = template.draw(lines)
    return f'<style>{_STYLE}</style><div class="duesweep">{drawn}</div>'


def write_page(found: Statuses, file: Path) -> None:
    """Replace the file as a whole: a browser may be showing it. A link to it stays, and anything
    that is no file, such as /dev/null, is written to.
    """
    text = render(found.sources, found.made_at)
    try:
        if file.exists() and not file.is_file():
            file.write_text(text, encoding="utf-8")
            return
        target = file.resolve()
        new = target.with_name(f".{target.name}.new")
        # Left by a writer that was killed, or a link of another user's.
        new.unlink(missing_ok=True)
        with new.open("x", encoding="utf-8") as page:
            if target.exists():
                # Who may not read the former page may not read this one.
                copymode(target, new)
            page.write(text)
        new.replace(target)
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written into {file}: {error.strerror}",
            advice="give another file with --out",
        ) from error


def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: make_printable(value) if type(value) is str else value,
        trim_blocks=True,
        loader=FunctionLoader(
            lambda name: files("duesweep.report").joinpath(name).read_text("utf-8")
        ),
    )
    environment.globals["views"] = views
    environment.globals["bars"] = lambda steps, title: Markup(bars(steps, title))  # noqa: S704 - of ours
    filters: Mapping[str, Callable[..., object]] = {
        "count": lambda number: f"{number:,}",
        "time": time_text,
        "kind": lambda block: type(block).__name__,
        "cells": _cells,
    }
    environment.filters |= filters
    return environment


def _cells(row: Row) -> Sequence[Cell]:
    """Names of messages may be as long as a message; commands stay whole."""
    return [Cell(shorten(each, _LONGEST)) if isinstance(each, str) else each for each in row]


def bars(steps: Sequence[Step], title: str) -> str:
    """An SVG element with a bar for each step, and labels for as many of them as have room."""
    top = _round_up(max(step.messages for step in steps))
    wide = (_WIDTH - _LEFT) / len(steps)
    scale = (_BOTTOM - _TOP) / top
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">']
    for number in (0, top // 2, top):
        y = _BOTTOM - number * scale
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="n">{number:,}</text>')
    every = -(-sum(len(step.label) for step in steps) // _MOST_CHARACTERS)
    for number, (label, messages) in enumerate(steps):
        x, height = _LEFT + number * wide, messages * scale
        size = f'x="{x + wide * 0.1:.1f}" y="{_BOTTOM - height:.1f}" width="{wide * 0.8:.1f}"'
        told = f"<title>{label}: {messages:,}</title>"
        parts.append(f'<rect {size} height="{height:.1f}">{told}</rect>')
        if every == 1:
            parts.append(f'<text x="{x + wide / 2:.1f}" y="{_HEIGHT - 6}" class="m">{label}</text>')
        elif number % every == 0 and x + len(label) * _CHARACTER <= _WIDTH:
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 6}">{label}</text>')
    return "".join([*parts, "</svg>"])


def _round_up(count: int) -> int:
    """An even number with one digit and zeros, at least as large."""
    unit = 1
    while count > 10 * unit:
        unit *= 10
    return max(2, -(-count // (2 * unit)) * 2 * unit)
