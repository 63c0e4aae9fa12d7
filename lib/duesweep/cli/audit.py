"""`duesweep audit`: whether store, journal and ledger agree."""

import json
from collections.abc import Sequence
from pathlib import Path

from duesweep import config as configuration
from duesweep.core.errors import ExitCode, make_printable
from duesweep.operations.duesweep import Duesweep
from duesweep.report.audit import sentences
from duesweep.report.document import plain


def run(file: Path | None, overrides: Sequence[str], *, as_json: bool) -> ExitCode:
    """Audit the source, and tell what was found."""
    report = Duesweep(configuration.load(file, overrides)).audit()
    if as_json:
        print(json.dumps(plain(report)))
    else:
        for sentence in sentences(report):
            print(make_printable(sentence))
    return report.exit_code
