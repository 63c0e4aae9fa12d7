"""The report: one page of HTML, with all that it needs. What messages and services brought with
them is escaped. The style sheet gives the plots' colours, light or dark.
"""

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pygal
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from pygal.style import Style

from duesweep.core.errors import ConfigError, make_printable, shorten
from duesweep.operations.status import Status, Statuses, Step
from duesweep.report.quantities import duration_text

# It looks for pygal's own plugins, in a way that Python 3.11 warns of at each import to come.
sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, pygal.PluginImportFixer)]

_WIDTH, _HEIGHT = 380, 200
# So many characters of labels fit beside each other.
_MOST_CHARACTERS = 38
_STYLE = Style(
    background="transparent",
    plot_background="transparent",
    foreground="var(--faint)",
    foreground_strong="var(--faint)",
    foreground_subtle="var(--line)",
    guide_stroke_color="var(--line)",
    major_guide_stroke_color="var(--line)",
    colors=("var(--bar)",),
    opacity="1",
    font_family="inherit",
    label_font_size=12,
    major_label_font_size=12,
)


def render(sources: Sequence[Status], made_at: datetime) -> str:
    """One document of HTML, with all that it needs."""
    template = files("duesweep.report").joinpath("page.html").read_text(encoding="utf-8")
    title = sources[0].source if len(sources) == 1 else f"{len(sources)} endpoints"
    page = _environment().from_string(template)
    return page.render(sources=sources, made_at=made_at, title=title)


def write_page(found: Statuses, file: Path) -> None:
    """Replace the file as a whole: somebody may be looking at it."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(render(found.sources, found.made_at), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written into {file}: {error.strerror}",
            advice="give another file with --out",
        ) from error


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
        "words": lambda words: "".join(f" {shlex.quote(word)}" for word in words),
        "short_class": lambda name: name.rpartition(".")[2],
        "shorten": shorten,
    }
    return environment


def _printable(value: Any) -> Any:
    return make_printable(value) if type(value) is str else value


def bars(steps: Sequence[Step]) -> str:
    """An SVG element with a bar for each step. The library escapes the labels."""
    chart = pygal.Bar(
        style=_STYLE,
        width=_WIDTH,
        height=_HEIGHT,
        js=(),
        margin=4,
        # Half of the last label.
        margin_right=30,
        spacing=6,
        show_legend=False,
        disable_xml_declaration=True,
        show_minor_x_labels=False,
        truncate_label=-1,
        y_labels_major_count=3,
        show_minor_y_labels=False,
        min_scale=2,
        # Whole messages: no label stands for a part of one.
        range=(0, max(4, *(step.messages for step in steps))),
        value_formatter=lambda count: f"{count:,.0f}",
    )
    chart.x_labels = [step.label for step in steps]
    characters = sum(len(step.label) for step in steps)
    every = -(-characters // _MOST_CHARACTERS)
    chart.x_labels_major = [step.label for step in steps[::every]]
    chart.add_xml_filter(_without_scripts)
    chart.add("", [step.messages for step in steps])
    return str(chart.render(is_unicode=True))


def _without_scripts(root: Any) -> Any:
    for parent in root.iter():
        for child in list(parent):
            if str(child.tag).endswith("script"):
                parent.remove(child)
    return root
