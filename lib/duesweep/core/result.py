"""The results of operations, for programs and notebooks."""

import sys
from typing import Any


def _entry() -> Any:
    """The package's own entry, which knows where documents and texts are made."""
    return sys.modules["duesweep"]


class Result:
    """A value that an operation returns."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of the command, as `json.dumps` takes it."""
        document: dict[str, Any] = _entry().document(self)
        return document

    def _repr_html_(self) -> str:
        """The text of the command, for a notebook."""
        html: str = _entry().html(self)
        return html


class Listed(Result):
    """A result that lists rows of one kind."""

    __slots__ = ()

    def to_arrow(self) -> Any:
        """Its rows as a `pyarrow.Table`."""
        return _entry().arrow(self)
