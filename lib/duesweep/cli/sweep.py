"""`duesweep sweep`: asks the store first, and starts Spark only if there is much to do."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from duesweep import config as configuration
from duesweep.cli.output import ended_with
from duesweep.cli.signals import stop_on_signals
from duesweep.core.errors import make_printable, worst
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.look import Look
from duesweep.operations.opening import endpoints_of, open_endpoint
from duesweep.operations.run import Run, failed_run, run_all, run_once
from duesweep.report.progress import sweeping_line
from duesweep.report.tables import print_blocks


def run(
    settings: Sequence[configuration.EndpointSettings],
    overrides: Sequence[str],
    *,
    as_json: bool,
    max_seconds: int | None,
    max_messages: int | None,
) -> int:
    """Sweep once, until a signal or the time stops the sweep. `max_seconds` count from the start of
    the command; with `max_messages` it claims no more. None: no limit.
    """
    at = None if max_seconds is None else configuration.STARTED + max_seconds
    stop = Stop(at, max_messages)
    with stop_on_signals(stop):
        if len(settings) > 1:
            code, document = _run_all(settings, overrides, stop, as_json=as_json)
        else:
            opened = open_endpoint(configuration.load(settings[0], overrides))
            code, document = _run_one(opened, stop, as_json=as_json)
        # Last: if a second signal ended this before, its document would be a second one.
        if as_json:
            with ended_with(code):
                print(json.dumps(document()), flush=True)
        return code


# Its exit code, and the function that makes its document.
_Ended = tuple[int, Callable[[], dict[str, Any]]]


def _run_one(endpoint: Endpoint, stop: Stop, *, as_json: bool) -> _Ended:
    """Run, print and tell."""
    began = time.monotonic()
    try:
        run = run_once(endpoint, stop, before=_tell_looks, shown=partial(sweeping_line, endpoint))
    except Exception as error:
        _tell_monitoring([(endpoint, failed_run(endpoint.source, error, time.monotonic() - began))])
        raise
    from duesweep.report.views import runs  # noqa: PLC0415 - a refused run does without

    try:
        with ended_with(run.exit_code):
            print_blocks(runs.run_blocks(run, endpoint.context), as_json=as_json)
    finally:
        _tell_monitoring([(endpoint, run)])
    return run.exit_code, partial(runs.document, run)


def _run_all(
    settings: Sequence[configuration.EndpointSettings],
    overrides: Sequence[str],
    stop: Stop,
    *,
    as_json: bool,
) -> _Ended:
    """The same of several: a line for each, and the sums of all."""
    endpoints, failures = endpoints_of(settings, overrides)
    before = partial(_tell_looks, names_sources=True)
    ran = run_all(endpoints, stop, before=before)
    from duesweep.report.views import runs  # noqa: PLC0415 - a refused run does without

    unread = [failed_run(name, error) for name, error in failures]
    contexts = [(endpoint.context, run) for endpoint, run in ran]
    everything = sorted([*(run for _, run in ran), *unread], key=lambda run: run.source)
    code = worst([run.exit_code for run in everything])
    try:
        with ended_with(code):
            print_blocks(runs.fleet_blocks(contexts, unread), as_json=as_json)
    finally:
        _tell_monitoring(ran)
    return code, partial(runs.fleet_document, everything, code)


def _tell_looks(looks: Sequence[tuple[Endpoint, Look]], *, names_sources: bool = False) -> None:
    """Report the looks."""
    for endpoint, look in looks:
        for notice in look.notices:
            said = notice.sentences
            _tell(f"{endpoint.source}: {said}" if names_sources else said)


def _tell_monitoring(ran: Sequence[tuple[Endpoint, Run]]) -> None:
    """Pass runs that have ended, with whatever result, to the outputs."""
    silent = configuration.MetricsConfig()
    if not configuration.otlp_settings("metrics"):
        ran = [(endpoint, run) for endpoint, run in ran if endpoint.config.metrics != silent]
    if not ran:
        return
    from duesweep.report.outputs import tell_of  # noqa: PLC0415 - few want it

    for problem in tell_of(ran):
        _tell(str(problem))


def _tell(sentence: str) -> None:
    print(make_printable(f"duesweep: {sentence}"), file=sys.stderr)
