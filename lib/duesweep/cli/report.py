"""`duesweep report`: writes the page about what was swept, what waits, and what needs a hand."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from duesweep import config as configuration
from duesweep.config import EndpointSettings
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.operations.opening import endpoints_of
from duesweep.operations.status import Status, status
from duesweep.report.page import render

DEFAULT_DAYS = 7
_STANDARD_OUTPUT = Path("-")


def run(
    files: Sequence[Path],
    endpoint: str | None,
    overrides: Sequence[str],
    *,
    out: Path,
    days: int,
) -> ExitCode:
    """Write the page into `out`; `-` is standard output. Returns 4 if nothing of some endpoint
    could be read, 2 if its settings are wrong: the page says so, and has all others.
    """
    code = write_page(configuration.settings_of(files, endpoint), overrides, out, days)
    if out != _STANDARD_OUTPUT:
        print(make_printable(f"The report is in {out}"))
    return code


def write_page(
    settings: Sequence[EndpointSettings], overrides: Sequence[str], out: Path, days: int
) -> ExitCode:
    """The same of these endpoints, without a word."""
    endpoints, failures = endpoints_of(settings, overrides)
    if not endpoints:
        raise failures[0][1]
    facts = [status(each.config, each.context, days) for each in endpoints]
    facts += [Status(name, None, None, problems=[str(error)]) for name, error in failures]
    page = render(facts, datetime.now(UTC))
    if out == _STANDARD_OUTPUT:
        sys.stdout.write(page)
    else:
        _write(out, page)
    if failures:
        return ExitCode.CONFIGURATION
    return ExitCode.DONE if all(each.is_known for each in facts) else ExitCode.WORK_LEFT


def _write(out: Path, page: str) -> None:
    """Replace the file as a whole: somebody may be looking at it."""
    new = out.with_name(f".{out.name}.new")
    try:
        new.write_text(page, encoding="utf-8")
        new.replace(out)
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written into {out}: {error.strerror}",
            advice="give another file with --out",
        ) from error
