"""`duesweep maintain`: looks after the journal and the ledger."""

import json
from collections.abc import Sequence
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.maintaining import maintain_source
from duesweep.core.errors import ExitCode, make_printable
from duesweep.report.maintain import COLUMNS, document, sentences, table_row
from duesweep.report.tables import print_table


def run(
    file: Path | None, overrides: Sequence[str], forget: Sequence[str], *, as_json: bool
) -> ExitCode:
    """Look after the source, and tell what was done."""
    report = maintain_source(configuration.load(file, overrides), forget)
    if as_json:
        print(json.dumps(document(report, ExitCode.DONE)))
        return ExitCode.DONE
    print_table(COLUMNS, [table_row(one) for one in report.tables])
    for sentence in sentences(report):
        print(make_printable(sentence))
    return ExitCode.DONE
