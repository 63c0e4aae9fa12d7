"""`duesweep audit`: whether store, journal and ledger agree."""

import json
from collections.abc import Sequence
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.auditing import audit_source
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.errors import ExitCode, make_printable
from duesweep.report.audit import document, sentences


def run(file: Path | None, overrides: Sequence[str], *, as_json: bool) -> ExitCode:
    """Audit the source, and tell what was found."""
    report = audit_source(sweep_context(configuration.load(file, overrides)))
    code = ExitCode.MESSAGES_FAILED if report.suspects else ExitCode.DONE
    if as_json:
        print(json.dumps(document(report, code)))
    else:
        for sentence in sentences(report):
            print(make_printable(sentence))
    return code
