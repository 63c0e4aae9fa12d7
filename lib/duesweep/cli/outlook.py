"""`duesweep plan`: what a sweep would do now."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from duesweep import config as configuration
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.errors import ExitCode, make_printable
from duesweep.operations.look import DestinationOutlook, look_ahead
from duesweep.report.outlook import COLUMNS, destination_row, document, sentences
from duesweep.report.tables import print_table


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`with_sql`: show how the plan reads the claim keys, too."""

    with_sql: bool = False
    as_json: bool = False


def run(
    of: configuration.EndpointSettings, overrides: Sequence[str], options: PlanOptions
) -> ExitCode:
    """Tell what a sweep would do. The destinations come first, before all messages are counted."""
    context = sweep_context(configuration.load(of, overrides))
    outlook = look_ahead(context, None if options.as_json else _show)
    sql = outlook.sql if options.with_sql else None
    if options.as_json:
        print(json.dumps(document(outlook) | ({"sql": sql} if options.with_sql else {})))
        return ExitCode.DONE
    for sentence in sentences(outlook):
        print(make_printable(sentence))
    if sql is not None:
        print(f"\n{sql}")
    return ExitCode.DONE


def _show(destinations: Sequence[DestinationOutlook]) -> None:
    if destinations:
        print_table(COLUMNS, [destination_row(one) for one in destinations])
        print(flush=True)
