"""Names and texts in the SQL that delta-rs runs: it takes no bound values."""


def quote(name: str) -> str:
    """The name of a column."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, or an instant as text, which takes the type of what it is compared with."""
    return "'" + text.replace("'", "''") + "'"
