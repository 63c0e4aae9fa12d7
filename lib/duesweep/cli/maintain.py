"""`duesweep maintain`: looks after the journal and the ledger."""

import json
from collections.abc import Sequence
from pathlib import Path

from duesweep import config as configuration
from duesweep.core.errors import ExitCode, make_printable
from duesweep.operations.duesweep import Duesweep
from duesweep.report.document import plain
from duesweep.report.maintain import COLUMNS, sentences, table_row
from duesweep.report.tables import print_table


def run(
    file: Path | None, overrides: Sequence[str], forget: Sequence[str], *, as_json: bool
) -> ExitCode:
    """Look after the source, and tell what was done."""
    report = Duesweep(configuration.load(file, overrides)).maintain(forget=forget)
    if as_json:
        print(json.dumps(plain(report)))
        return report.exit_code
    print_table(COLUMNS, [table_row(one) for one in report.tables])
    for sentence in sentences(report):
        print(make_printable(sentence))
    return report.exit_code
