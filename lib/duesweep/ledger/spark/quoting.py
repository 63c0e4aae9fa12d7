"""Texts in the SQL that Spark runs."""


def literal(text: str) -> str:
    """A text, also with quotes and backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
