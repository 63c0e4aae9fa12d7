"""Names in SQL are quoted by one function for each sign; all else is bound. No data becomes code.

That SQL is put together of names only is shown elsewhere: ruff's S608 finds queries that are not in
the files of SQL, but for the words below; import-linter leaves these files and the databases'
sessions to `drivers/`, tests/golden records all that these send, and tests/contract/security has
names that attack. Modules, evaluation, XML and shells are ruff's affair (pyproject.toml: TID251 and
the rules S); it does not know the calls below.
"""

import re
from collections import Counter
from pathlib import Path

import duesweep

PACKAGE = Path(duesweep.__file__).parent
# The transports' own tools are a package of their own.
SOURCES = [*PACKAGE.rglob("*.py"), *PACKAGE.with_name("duesweep_transport").rglob("*.py")]
# `core` has PostgreSQL's and SQL Server's names, `ledger` Delta's.
FOLDERS = {"core", "drivers", "ledger"}
# As in name.replace("]", "]]").
_DOUBLED = re.compile(r"""\.replace\((["'])(\\?.)\1, *(["'])\2\2\3\)""")


def test_a_sign_is_doubled_in_one_place_of_a_package() -> None:
    places = Counter(
        (path.parent.relative_to(PACKAGE.parent).as_posix(), found[2])
        for path in SOURCES
        for found in _DOUBLED.finditer(path.read_text(encoding="utf-8"))
    )

    assert {folder.split("/")[1] for folder, _ in places} == FOLDERS
    assert {sign for _, sign in places} >= {"'", '"', "]", "`"}
    assert [place for place, count in places.items() if count > 1] == []


def test_no_statement_that_ruff_does_not_know_is_put_together_in_python() -> None:
    unseen = re.compile(r"""\bf["'][^"'\n]*\b(?:EXEC|MERGE|TRUNCATE) """)

    assert [p for p in SOURCES if unseen.search(p.read_text(encoding="utf-8"))] == []


# Not a method, as re.compile is one.
_CALLS = re.compile(r"(?<![\w.])(?:compile|__import__|loads_pickle)\(")


def test_nothing_is_compiled_or_imported_by_a_built_in_function() -> None:
    found = {
        path.relative_to(PACKAGE.parent).as_posix(): calls
        for path in SOURCES
        if (calls := _CALLS.findall(path.read_text(encoding="utf-8")))
    }

    assert found == {}
