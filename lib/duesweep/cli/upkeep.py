"""The commands that look after an endpoint: `setup`, `doctor`, `config`, `report`, `audit` and
`maintain`.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duesweep.cli.commands import (
    AGAIN,
    NOTHING,
    Common,
    ConfigFiles,
    Configured,
    EndpointName,
    Overrides,
    Printed,
    PrintSql,
    Several,
    command,
)
from duesweep.core.errors import ConfigError
from duesweep.report.text import Line
from duesweep.report.views import upkeep as views

if TYPE_CHECKING:
    from duesweep.operations.duesweep import Duesweep

app = typer.Typer()

_STANDARD_OUTPUT = Path("-")


@command(app, "setup", ending=AGAIN, short="Create missing tables in the database.")
def setup(
    *,
    common: Common,
    print_sql: PrintSql = False,
    grant_to: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="With --print-sql: also print the grants for this role."),
    ] = None,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="Bind the journal to the ledger at ledger.root.")
    ] = False,
    new_endpoint: Annotated[
        bool, typer.Option("--new-endpoint", help="Even if one has almost the same name.")
    ] = False,
) -> Printed:
    """Create the tables that NServiceBus would create for the endpoint, and duesweep's journal.

    Example: duesweep setup --print-sql
    """
    if grant_to is not None and not print_sql:
        raise ConfigError(
            "--grant-to grants nothing by itself",
            advice="add --print-sql, and let an administrator run the printed statements",
        )
    if print_sql:
        script = common.duesweep().setup_script(grant_to, new_endpoint=new_endpoint)
        return Printed({"sql": script}, map(Line, script.split("\n")))
    done = common.duesweep().setup(rebind=rebind, new_endpoint=new_endpoint)
    return Printed(done, views.set_up(done))


@command(
    app, "doctor", ending=NOTHING, short="Check the setup and explain each problem.", has_steps=True
)
def doctor(
    *,
    several: Several,
    no_spark: Annotated[
        bool,
        typer.Option(
            "--no-spark", help="Do not check Spark, its executors and a ledger that Spark writes."
        ),
    ] = False,
    print_sql: Annotated[
        bool,
        typer.Option("--print-sql", help="Print only the SQL statements that correct findings."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also print passed checks.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Ignore the findings of a check; may be repeated."),
    ] = None,
) -> Printed:
    """Check services and settings, and say what to do about each problem. Changes no rows.

    Exits with 3 if there is a fault or a warning, else with 0.

    Example: duesweep doctor --no-spark
    """

    def examined(one: "Duesweep") -> Printed:
        found = one.doctor(ignored=ignore or [], with_spark=not no_spark)
        if print_sql:
            return Printed(found, views.mending_statements(found))
        return Printed(found, views.diagnosis(found, is_verbose=verbose))

    if not no_spark and sys.stderr.isatty():
        print("duesweep: checks of Spark take 10 s or more; --no-spark skips them", file=sys.stderr)
    return several.each(examined, "-- " if print_sql else "== ")


@command(
    app, "config", ending=NOTHING, short="Print all settings with masked secrets.", document=None
)
def show_config(*, configured: Configured) -> Printed:
    """Print the effective configuration as one JSON document, with secrets masked.

    Example: duesweep config
    """
    from duesweep import config as configuration

    found = configuration.mask_secrets(configured.loaded())
    return Printed(None, map(Line, json.dumps(found, indent=2).split("\n")))


@command(
    app,
    "report",
    ending="nothing was changed, and a page that is there stays as it was",
    short="Write an HTML status report.",
    has_steps=True,
)
def report(
    *,
    config: ConfigFiles = None,
    endpoint: EndpointName = None,
    settings: Overrides = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The HTML file; - is standard output.")
    ] = Path("duesweep-report.html"),
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=400, help="Show the last N days.")
    ] = 7,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; write no report.")
    ] = False,
) -> Printed:
    """Write an HTML status report: due messages and the reasons that hold them back, the last
    sweeps, lateness, the next messages, failures, open errors, pauses, and the doctor's findings.
    The page needs no network.

    Exits with 4 if neither the store nor the ledger of an endpoint could be read.

    Example: duesweep report --out /var/www/duesweep.html
    """
    from duesweep import config as configuration
    from duesweep.operations.status import statuses

    of = configuration.settings_of(config or [], endpoint)
    found = statuses(of, settings or [], days)
    if as_json:
        return Printed(found, ())
    from duesweep.report.page import render, write_page
    from duesweep.report.views.status import headline, verdict

    if out == _STANDARD_OUTPUT:
        sys.stdout.write(render(found.sources, found.made_at))
        return Printed(found, ())
    write_page(found, out)
    first = Line(f"{headline(found.sources).text} The report is in {out}")
    return Printed(found, [first, *verdict(found.sources)])


@command(app, "audit", ending=NOTHING, short="Compare store, journal and ledger.", has_steps=True)
def audit(*, common: Common) -> Printed:
    """Compare store, journal and ledger: each message that left has one tombstone, and the sums of
    sweeps and tombstones agree. Changes and locks nothing; sweeps may run at the same time.

    Exits with 3 if it finds a difference.

    Example: duesweep audit --json
    """
    found = common.duesweep().audit()
    return Printed(found, views.audited(found))


@command(
    app, "maintain", ending=AGAIN, short="Clean up the journal and the ledger.", has_steps=True
)
def maintain(
    *,
    common: Common,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Delete the data of a source without a delayed table; may be repeated.",
        ),
    ] = None,
) -> Printed:
    """Settle interrupted sweeps, remove retry counters of messages that are gone, merge the
    ledger's files, and delete old files and rows (ledger.vacuum_days and ledger.keep_days). Sweeps
    may run at the same time.

    Example: duesweep maintain --set ledger.keep_days=400
    """
    done = common.duesweep().maintain(forget=forget or ())
    return Printed(done, views.maintained(done))
