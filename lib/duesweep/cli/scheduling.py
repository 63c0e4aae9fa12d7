"""`duesweep schedule …`: forms in which other programs run duesweep."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import ConfigFile, Overrides
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.core.times import parse_duration

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Print what runs it: a crontab's lines, systemd's units, Kubernetes' objects, a DAG.",
)

Every = Annotated[str, typer.Option(metavar="TIME", help="Sweep so often, as in 30s or 5m.")]
_MINUTE = "1m"
_SHORTEST = timedelta(seconds=1)
_DEFAULT_FILE = Path("duesweep.toml")


@app.command()
def cron(config: ConfigFile = None, settings: Overrides = None, *, every: Every = _MINUTE) -> int:
    """Print lines for a crontab: a sweep so often, and every night `maintain` and `audit`.

    Example: duesweep schedule cron --every 5m
    """
    return _print("cron.txt", config, settings, every)


@app.command()
def systemd(
    config: ConfigFile = None, settings: Overrides = None, *, every: Every = _MINUTE
) -> int:
    """Print a service for `duesweep watch`, and a timer with a service for `duesweep sweep`.

    Example: duesweep schedule systemd
    """
    return _print("systemd.txt", config, settings, every)


@app.command()
def kubernetes(
    config: ConfigFile = None, settings: Overrides = None, *, every: Every = _MINUTE
) -> int:
    """Print a Deployment for `duesweep watch`, and a CronJob for `duesweep sweep`.

    Example: duesweep schedule kubernetes > duesweep.yaml
    """
    return _print("kubernetes.yaml", config, settings, every)


@app.command()
def airflow(
    config: ConfigFile = None, settings: Overrides = None, *, every: Every = _MINUTE
) -> int:
    """Print a DAG for Apache Airflow 3.

    Example: duesweep schedule airflow --every 10m
    """
    return _print("airflow.txt", config, settings, every)


def _print(form: str, config: Path | None, settings: list[str] | None, every: str) -> ExitCode:
    from duesweep import config as configuration
    from duesweep.config.adapters.endpoint import ledger_root
    from duesweep.ledger.base import local_folder
    from duesweep.operations.schedule import Scheduled, render

    each_time = parse_duration(every)
    if each_time < _SHORTEST:
        raise ConfigError("--every is less than a second", advice="use `duesweep watch`")
    path = (config or _DEFAULT_FILE).absolute()
    loaded = [
        configuration.load(each, settings or []) for each in configuration.settings_of([path])
    ]
    folders = [local_folder(ledger_root(each.ledger.root)) for each in loaded]
    title = loaded[0].store.endpoint if len(loaded) == 1 else path.stem
    scheduled = Scheduled(
        # Forms have it in comments and in quotes.
        title=make_printable(title).replace('"', "'").replace("\\", "/"),
        command=configuration.own_command(),
        config=str(path),
        is_folder=path.is_dir(),
        overrides=settings or [],
        every=each_time,
        variables=configuration.given_variables(),
        ledgers=sorted({str(folder) for folder in folders if folder is not None}),
        is_fleet=len(loaded) > 1,
    )
    print(render(form, scheduled), end="")
    return ExitCode.DONE
