"""What sessions of SQL Server give to the ODBC driver: texts, kinds of parameters, transactions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.golden.wire import Exchange, Statement

_KINDS = {str: "text", bytes: "bytes", bool: "bool", int: "int", float: "float"}
# ODBC's type, where duesweep declares one.
_DECLARED = {-9: "nvarchar(max)", -3: "varbinary(max)"}
_BEGIN = re.compile(r"\bBEGIN TRANSACTION\b")
# In one request.
_WHOLE = re.compile(r"\bBEGIN TRANSACTION\b.*\bCOMMIT TRANSACTION\b", re.DOTALL)
_END = re.compile(r"(COMMIT|IF @@TRANCOUNT > 0 ROLLBACK) TRANSACTION")


@dataclass
class RecordingOdbc:
    """Takes the place of `pyodbc.connect`, and keeps the statements of its sessions."""

    connect_with: Any
    _sessions: list[list[Exchange]] = field(default_factory=list)

    def connect(self, *arguments: Any, **options: Any) -> "_Connection":
        self._sessions.append([])
        return _Connection(self.connect_with(*arguments, **options), self._sessions[-1])

    def sessions(self) -> list[list[Exchange]]:
        """The statements of each session since the last call; an exchange is a call of the
        driver's.
        """
        sessions, self._sessions = self._sessions, []
        return sessions


class _Wrapped:
    """Hands on whatever is not recorded."""

    def __init__(self, raw: Any, calls: list[Exchange]) -> None:
        self.__dict__.update(_raw=raw, _calls=calls, _sizes=())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._raw, name, value)


class _Connection(_Wrapped):
    def cursor(self) -> "_Cursor":
        return _Cursor(self._raw.cursor(), self._calls)


class _Cursor(_Wrapped):
    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        self.__dict__["_sizes"] = sizes
        self._raw.setinputsizes(sizes)

    def execute(self, text: str, *parameters: Any) -> "_Cursor":
        values = parameters[0] if len(parameters) == 1 else parameters
        self._note(text, values)
        self._raw.execute(text, *parameters)
        return self

    def executemany(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        self._note(text, rows[0])
        self._raw.executemany(text, rows)

    def _note(self, text: str, values: Iterable[Any]) -> None:
        was_open = bool(self._calls) and self._calls[-1].is_open
        begins = bool(_BEGIN.search(text)) and not _WHOLE.search(text)
        is_open = not _END.match(text) and (was_open or begins)
        sizes = [*self._sizes, *[None] * 100]
        kinds = tuple(_kind(value, size) for value, size in zip(values, sizes, strict=False))
        self._calls.append(Exchange([Statement(text, kinds)], is_open=is_open))


def _kind(value: object, size: Any) -> str:
    if size is not None:
        return _DECLARED[size[0]]
    return "none" if value is None else _KINDS[type(value)]
