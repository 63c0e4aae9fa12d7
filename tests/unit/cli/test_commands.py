"""A command on several endpoints."""

from dataclasses import dataclass
from pathlib import Path

from duesweep.cli.commands import Printed, Several


@dataclass(frozen=True, slots=True)
class _Failed:
    error: str | None
    exit_code: int = 4


def test_document_of_several_endpoints_has_the_error_of_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.toml" for name in ("Billing", "Sales")]
    for file in files:
        text = '[store]\nkind = "postgresql"\ndsn = "postgresql://db.example/nsb"\n'
        file.write_text(f'{text}endpoint = "{file.stem}"\n[ledger]\nroot = "/ledger"\n', "utf-8")
    errors = iter(["the ledger is full", None])

    def do(_: object) -> Printed:
        return Printed(_Failed(next(errors)), ())

    found = Several(config=files, as_json=True).each(do).value

    assert isinstance(found, dict)
    assert found["exit_code"] == 4
    assert [each["error"] for each in found["sources"]] == ["the ledger is full", None]
