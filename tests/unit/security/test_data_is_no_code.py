"""No data is taken for code. Modules, evaluation, XML and shells are ruff's affair (pyproject.toml:
TID251 and the rules S); it does not know these calls.
"""

import re
from pathlib import Path

import duesweep

PACKAGE = Path(duesweep.__file__).parent
# Not a method, as re.compile is one.
_CALLS = re.compile(r"(?<![\w.])(?:compile|__import__|loads_pickle)\(")


def test_nothing_is_compiled_or_imported_by_a_built_in_function() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): calls
        for path in PACKAGE.rglob("*.py")
        if (calls := _CALLS.findall(path.read_text(encoding="utf-8")))
    }

    assert found == {}
