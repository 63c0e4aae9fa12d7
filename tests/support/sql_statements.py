"""The statements in the files of SQL, and which of them break a rule."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from duesweep.drivers.statements import statement, topics

# Every sign that ends or opens something.
UGLY_NAME = """a]b [c]] 'd' "e"; DROP x -- {f} 5% %(g)s ? @seconds @[@headers]"""
DIALECTS = ("postgresql", "sqlserver")


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement, with the file that it stands in."""

    dialect: str
    topic: str
    name: str
    text: str

    @property
    def comment(self) -> str:
        return "\n".join(re.findall("^ *--(.*)", self.text, re.MULTILINE))

    @property
    def code(self) -> str:
        return re.sub("--.*", "", self.text).strip()


ALL = [
    SqlStatement(dialect, topic, name, statement(dialect, name))
    for dialect in DIALECTS
    for topic, text in topics(dialect).items()
    for name in re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
]
POSTGRESQL = [each for each in ALL if each.dialect == "postgresql"]
SQL_SERVER = [each for each in ALL if each.dialect == "sqlserver"]


def broken(
    rule: Callable[[SqlStatement], object], statements: Iterable[SqlStatement] = ALL
) -> list[str]:
    """File, name and fault of each statement of which `rule` returns a fault; None is none."""
    checked = [(each, rule(each)) for each in statements]
    assert checked
    return [
        f"sql/{each.dialect}/{each.topic}.sql, {each.name}: {fault}"
        for each, fault in checked
        if fault
    ]
