"""The commands that look after an endpoint: `setup`, `doctor`, `config`, `report`, `audit`,
`maintain` and `schedule`.
"""

import json
import sys
from dataclasses import dataclass
from functools import partial
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
    PrintSql,
    Result,
    Several,
    command,
    group,
)
from duesweep.core.errors import ConfigError
from duesweep.core.times import parse_duration
from duesweep.report.text import Line
from duesweep.report.views import upkeep as views

if TYPE_CHECKING:
    from duesweep.operations.duesweep import Duesweep

app = typer.Typer()

_STANDARD_OUTPUT = Path("-")

schedule = group(
    "Print what runs it: a crontab's lines, systemd's units, Kubernetes' objects, a DAG."
)


@command(app, "setup", ending=AGAIN, short="Create what is missing in the database.")
def setup(
    *,
    common: Common,
    print_sql: PrintSql = False,
    grant_to: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="With --print-sql: print what ROLE needs to sweep, too."),
    ] = None,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="Bind the journal to the ledger of ledger.root again.")
    ] = False,
) -> Result:
    """Create the tables that NServiceBus would create for the endpoint, and duesweep's journal.

    Example: duesweep setup --print-sql
    """
    if grant_to is not None and not print_sql:
        raise ConfigError(
            "--grant-to grants nothing by itself",
            advice="give --print-sql too, and let an administrator run what it prints",
        )
    if print_sql:
        script = common.duesweep().setup_script(grant_to)
        return Result({"sql": script}, map(Line, script.split("\n")))
    done = common.duesweep().setup(rebind=rebind)
    return Result(done, views.set_up(done))


@command(app, "doctor", ending=NOTHING, short="Say what is wrong, and what to do.")
def doctor(
    *,
    several: Several,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Do not check Spark, its executors and the ledger.")
    ] = False,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print only the SQL statements that mend findings.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print passed checks, too.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Ignore the findings of a check; may be repeated."),
    ] = None,
) -> Result:
    """Check services and settings, and say what to do about each problem. Changes nothing.

    Exits with 3 if there is a fault or a warning, else with 0.

    Example: duesweep doctor --no-spark
    """

    def examined(one: "Duesweep") -> Result:
        found = one.doctor(ignored=ignore or [], with_spark=not no_spark)
        if print_sql:
            return Result(found, views.mending_statements(found))
        return Result(found, views.diagnosis(found, is_verbose=verbose))

    return several.each(examined, "-- " if print_sql else "== ")


@command(app, "config", ending=NOTHING, short="Print all settings, secrets masked.", document=None)
def show_config(*, configured: Configured) -> Result:
    """Print the effective configuration as one JSON document, with secrets masked.

    Example: duesweep config
    """
    from duesweep import config as configuration

    found = configuration.mask_secrets(configured.loaded())
    return Result(None, map(Line, json.dumps(found, indent=2).split("\n")))


@command(
    app,
    "report",
    ending="nothing was changed, and a page that is there stays as it was",
    short="Write a page about what was swept and what waits.",
)
def report(
    *,
    config: ConfigFiles = None,
    endpoint: EndpointName = None,
    settings: Overrides = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The page; - is standard output.")
    ] = Path("duesweep-report.html"),
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=400, help="Look back so many days.")
    ] = 7,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, and write no page.")
    ] = False,
) -> Result:
    """Say whether all is well, and write one page of HTML: what is due and why it is still there,
    the last sweeps, how late messages were, what comes due, what fails, the errors that wait for a
    hand, pauses, and the doctor's findings. It needs no network.

    Exits with 4 if neither the store nor the ledger of an endpoint could be read.

    Example: duesweep report --out /var/www/duesweep.html
    """
    from duesweep import config as configuration
    from duesweep.operations.status import statuses

    of = configuration.settings_of(config or [], endpoint)
    found = statuses(of, settings or [], days)
    if as_json:
        return Result(found, ())
    from duesweep.report.page import render, write_page
    from duesweep.report.views.status import headline, verdict

    if out == _STANDARD_OUTPUT:
        sys.stdout.write(render(found.sources, found.made_at))
        return Result(found, ())
    write_page(found, out)
    first = Line(f"{headline(found.sources).text} The report is in {out}")
    return Result(found, [first, *verdict(found.sources)])


@command(app, "audit", ending=NOTHING, short="Compare store, journal and ledger.")
def audit(*, common: Common) -> Result:
    """Compare store, journal and ledger: each message that left has one tombstone, and the sums of
    the sweeps are those of the tombstones. Changes and locks nothing; sweeps may run meanwhile.

    Exits with 3 if something does not agree.

    Example: duesweep audit --json
    """
    found = common.duesweep().audit()
    return Result(found, views.audited(found))


@command(app, "maintain", ending=AGAIN, short="Tidy up the journal and the ledger.")
def maintain(
    *,
    common: Common,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Delete what is kept of a source whose delayed table is gone; may be repeated.",
        ),
    ] = None,
) -> Result:
    """Settle what dead sweeps left, remove retry counters of messages that are gone, compact the
    ledger's files, and delete files and rows that are too old (ledger.vacuum_days and
    ledger.keep_days). Sweeps may run meanwhile.

    Example: duesweep maintain --set ledger.keep_days=400
    """
    done = common.duesweep().maintain(forget=forget or ())
    return Result(done, views.maintained(done))


@dataclass(frozen=True, slots=True)
class Scheduled(Configured):
    """What is run, and how often."""

    every: Annotated[str, typer.Option(metavar="TIME", help="Sweep so often, as in 30s or 5m.")] = (
        "1m"
    )

    def form(self, name: str) -> Result:
        from duesweep.operations.schedule import schedule

        every = parse_duration(self.every)
        text = schedule(name, self.config, self.settings or [], every, endpoint=self.endpoint)
        return Result(None, map(Line, text.removesuffix("\n").split("\n")))


_form = partial(command, schedule, ending=NOTHING, document=None)


@_form("cron")
def cron(*, scheduled: Scheduled) -> Result:
    """Print lines for a crontab: a sweep so often, and every night `maintain` and `audit`.

    Example: duesweep schedule cron --every 5m
    """
    return scheduled.form("cron.txt")


@_form("systemd")
def systemd(*, scheduled: Scheduled) -> Result:
    """Print a service for `duesweep watch`, and a timer with a service for `duesweep sweep`.

    Example: duesweep schedule systemd
    """
    return scheduled.form("systemd.txt")


@_form("kubernetes")
def kubernetes(*, scheduled: Scheduled) -> Result:
    """Print a Deployment for `duesweep watch`, and a CronJob for `duesweep sweep`.

    Example: duesweep schedule kubernetes > duesweep.yaml
    """
    return scheduled.form("kubernetes.yaml")


@_form("airflow")
def airflow(*, scheduled: Scheduled) -> Result:
    """Print a DAG for Apache Airflow 3.

    Example: duesweep schedule airflow --every 10m
    """
    return scheduled.form("airflow.txt")
