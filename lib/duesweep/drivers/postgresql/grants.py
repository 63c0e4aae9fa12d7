"""Which GRANT a refused statement needs."""

import re
from collections.abc import Iterator, Mapping

from duesweep.core.address import TableName, quote_name
from duesweep.sql import statement

_REFUSAL = re.compile(r"permission denied for (?P<kind>\w+) (?P<name>.*)")
# The rights that a statement needs on the table of a name in braces.
_RIGHTS = {
    "SELECT": r"(?<!DELETE )(?:FROM|JOIN|USING) {table}|(?:DELETE FROM|UPDATE) {table}",
    "INSERT": r"INSERT INTO {table}",
    "UPDATE": r"UPDATE {table}|FROM {table}.*FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)",
    "DELETE": r"DELETE FROM {table}",
}


def grant_of(
    refusal: str, user: str, name: str, names: Mapping[str, TableName | str]
) -> str | None:
    """The advice that grants `user` what the server's refusal of the named statement misses; None
    if the refusal does not say on what.
    """
    found = _REFUSAL.search(refusal)
    if found is None:
        return None
    role, thing = quote_name(user), quote_name(found["name"])
    if found["kind"] == "schema":
        creates = "CREATE TABLE" in statement("postgresql", name)
        rights = "USAGE, CREATE" if creates else "USAGE"
        return f"run GRANT {rights} ON SCHEMA {thing} TO {role}"
    if found["kind"] == "sequence":
        return f"run GRANT USAGE ON SEQUENCE {thing} TO {role}"
    for key, table in names.items():
        if str(table).endswith(thing):
            rights = ", ".join(_rights(statement("postgresql", name), key))
            return f"run GRANT {rights or 'ALL'} ON {table} TO {role}"
    return None


def _rights(text: str, key: str) -> Iterator[str]:
    for right, pattern in _RIGHTS.items():
        of_table = pattern.replace("{table}", re.escape(f"{{{key}}}"))
        if re.search(of_table, text, re.DOTALL):
            yield right
