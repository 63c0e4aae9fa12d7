"""Routes for the configuration of an endpoint under test."""

from pathlib import Path


def add_routes(file: Path, *routes: tuple[str, str, str]) -> Path:
    """Append a [[route]] for each (destination, connection, queue)."""
    with file.open("a", encoding="utf-8") as text:
        for destination, connection, queue in routes:
            text.write(
                f"[[route]]\ndestination = '{destination}'\nconnection = '{connection}'\n"
                f"queue = '{queue}'\n"
            )
    return file
