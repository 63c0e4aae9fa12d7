"""What `duesweep doctor --json` says."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import run

_STATEMENT = re.compile(r"(?:CREATE|ALTER|GRANT) .+?(?=; |, while |, in database |$)")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The exit code, the document, and the text of both streams."""

    code: int
    document: dict[str, Any]
    text: str

    def to_mend(self) -> dict[tuple[str, str], str]:
        """The severities of faults and warnings, by check and subject."""
        return {
            (finding["check"], finding["about"]): finding["severity"]
            for finding in self.document["findings"]
            if finding["severity"] in {"fault", "warning"}
        }

    def all_of(self, check: str) -> list[dict[str, Any]]:
        return [f for f in self.document["findings"] if f["check"] == check]

    def statements(self, check: str) -> list[str]:
        """The statements in the advice of a check's findings, without the words around them."""
        advice = [finding["advice"] or "" for finding in self.all_of(check)]
        return [each for text in advice for each in _STATEMENT.findall(text)]

    def of(self, check: str) -> dict[str, Any]:
        found: dict[str, Any] = next(f for f in self.document["findings"] if f["check"] == check)
        return found


def diagnosed(file: Path, *options: str, with_spark: bool = False) -> Diagnosis:
    more = [] if with_spark else ["--no-spark"]
    ran = run("doctor", "--json", "--config", str(file), *more, *options)
    return Diagnosis(ran.code, ran.document, ran.told)
