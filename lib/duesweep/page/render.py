"""Writes the page. What messages and services brought with them is escaped."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from duesweep.core.errors import make_printable, shorten
from duesweep.page.facts import SourceFacts
from duesweep.page.plots import bars
from duesweep.report.quantities import duration_text

_TEMPLATE = "page.html"


def render(sources: Sequence[SourceFacts], made_at: datetime) -> str:
    """One document of HTML, with all that it needs."""
    template = files("duesweep.page").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    title = sources[0].source if len(sources) == 1 else f"{len(sources)} endpoints"
    page = _environment().from_string(template)
    return page.render(sources=sources, made_at=made_at, title=title)


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_printable, trim_blocks=True
    )
    environment.globals["bars"] = lambda steps: Markup(bars(steps))  # noqa: S704 - of numbers
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "instant": lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        "late": lambda ms: "" if ms is None else duration_text(ms),
        "quoted": shlex.quote,
        "short_class": lambda name: name.rpartition(".")[2],
        "shorten": shorten,
    }
    return environment


def _printable(value: Any) -> Any:
    return make_printable(value) if type(value) is str else value
