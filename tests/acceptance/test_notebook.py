"""docs/notebook.ipynb, from top to bottom: each cell returns what the notebook shows.

With DUESWEEP_WRITE_PAGES=1 the notebook gets what they return now.
"""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.endpoint import Endpoint

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
TOMORROW = 86_400


@pytest.mark.usefixtures("no_spark_session")
def test_cells_return_what_the_notebook_shows(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    endpoint.set_up("Billing", "Reminders.Mail")
    endpoint.delay_many(3, ["Billing"])
    endpoint.delay("Archive")
    endpoint.delay_many(2, ["Reminders.Mail"], due_in_seconds=TOMORROW)
    # A queue that is missing is found at once.
    file = endpoint.config_file(retry__max_attempts=1)
    monkeypatch.chdir(file.parent)
    assert file.name == "duesweep.toml"

    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = [cell["outputs"] for cell in cells]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _run("".join(cell["source"]), names, number)

    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert len(cells) > 5
    assert [cell["outputs"] for cell in cells] == shown


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell as a notebook does: the value of its last line is what it shows."""
    *lines, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(source, names)
        return []
    exec(compile(ast.Module(lines, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    text = repr(value).splitlines(keepends=True)
    return [
        {
            "data": {"text/plain": text},
            "execution_count": number,
            "metadata": {},
            "output_type": "execute_result",
        }
    ]
