"""Facts: questions to a server, in files of SQL, with the answers on which duesweep relies.

    -- fact: Does READPAST skip rows that another session has claimed?
    -- answer: 4
    -- answer (no row versions): 3
    -- A
    BEGIN TRANSACTION; ...
    -- B asks
    SELECT ...

Each step is a batch of a session: A, B, or M, which is outside of the database. The answer is
the last result of the step that `asks`, else of the last step: its rows, or its error. Answers may
have `*`, and others for databases with certain options. A step that `fails` has to, one that
`starts` runs at the same time as the next ones, one `within 1 s` has that time-out. {A} is the
number of that session, {database} the name of the database. tables.sql comes before each fact.
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duesweep.core.errors import DuesweepError
from duesweep.core.policy import SessionWaits
from duesweep.drivers.sqlserver.dsn import OdbcDsn, odbc
from duesweep.drivers.sqlserver.errors import destination_errors, map_errors, number_of
from duesweep.drivers.sqlserver.session import connect

FACTS = Path(__file__).with_name("facts")
_OUTSIDE = "M"
_WAITS = SessionWaits(connect_seconds=15, answer_seconds=60, lock_seconds=1)
_STEP = re.compile(
    r"^-- (?P<session>[ABM])(?: within (?P<seconds>\d+) s)?(?: (?P<role>asks|fails|starts))?$",
    re.MULTILINE,
)
_ANSWER = re.compile(r"^-- answer(?: \((?P<options>[^)]*)\))?: (?P<answer>.*)$", re.MULTILINE)
_GIVEN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of a session. `role`: asks, fails, starts or none; `seconds` is its time-out."""

    session: str
    text: str
    role: str | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A question, the answer that is expected, by the options of the database, and its steps."""

    question: str
    answers: Mapping[str | None, str]
    steps: Sequence[Step]

    def expected(self, options: str) -> str:
        """The answer of a database with these options."""
        return self.answers.get(options, self.answers[None])

    @property
    def asking(self) -> int:
        """The index of the step whose result is the answer."""
        asking = [index for index, step in enumerate(self.steps) if step.role == "asks"]
        return asking[0] if asking else len(self.steps) - 1


def read_facts(folder: Path = FACTS) -> Sequence[Fact]:
    """All facts, by file and in their order."""
    texts = [file.read_text("utf-8") for file in sorted(folder.glob("*.sql"))]
    return [_fact(part) for text in texts for part in text.split("-- fact: ")[1:]]


def _fact(text: str) -> Fact:
    answers = {found["options"]: found["answer"] for found in _ANSWER.finditer(text)}
    heads = list(_STEP.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    steps = [
        Step(
            head["session"],
            text[head.end() : end].strip(),
            head["role"],
            int(head["seconds"]) if head["seconds"] else None,
        )
        for head, end in zip(heads, ends, strict=True)
    ]
    return Fact(text.partition("\n")[0], answers, steps)


def ask(fact: Fact, dsn: str) -> str:
    """The answer of the database of `dsn`, with sessions of duesweep's own settings.

    Raises `DuesweepError` if the database accepts no session.
    """
    with _Sessions(dsn) as sessions:
        sessions.session("A").cursor().execute((FACTS / "tables.sql").read_text("utf-8"))
        answer = ""
        for index, step in enumerate(fact.steps):
            result, has_failed = sessions.run(step)
            if index == fact.asking:
                answer = result
            elif has_failed != (step.role == "fails"):
                problem = result if has_failed else "it did not fail"
                return answer or f"step {index + 1} of {len(fact.steps)}: {problem}"
        return answer


@dataclass(slots=True)
class _Sessions:
    """The sessions of a fact, opened when they are used first."""

    dsn: str
    _open: dict[str, Any] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)
    _beside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _busy: set[str] = field(default_factory=set)

    def __enter__(self) -> "_Sessions":
        return self

    def __exit__(self, *_: object) -> None:
        # A busy one waits for the others.
        for name in sorted(self._open, key=self._busy.__contains__):
            if name in self._busy:
                self._beside.shutdown()
            with suppress(odbc().Error):
                self._open[name].close()
        self._beside.shutdown()

    def session(self, name: str) -> Any:
        """The driver's connection."""
        if name not in self._open:
            dsn = OdbcDsn.parse(self.dsn)
            pairs = dsn.pairs | ({"database": "master"} if name == _OUTSIDE else {})
            raw = connect(OdbcDsn(pairs).text(), _WAITS)._raw  # noqa: SLF001 - its driver's
            self._open[name] = raw
            self._numbers[name] = str(raw.execute("SELECT @@SPID").fetchval())
        return self._open[name]

    def run(self, step: Step) -> tuple[str, bool]:
        """The result of a step as text, and whether it is an error."""
        try:
            raw = self.session(step.session)
            given = {"database": f"[{OdbcDsn.parse(self.dsn).pairs['database']}]", **self._numbers}
            text = _GIVEN.sub(lambda found: given[found[1]], step.text)
            if step.role == "starts":
                self._busy.add(step.session)
                self._beside.submit(_rows, raw, text)
                return "", False
            patience, raw.timeout = raw.timeout, step.seconds or raw.timeout
            try:
                return _rows(raw, text), False
            finally:
                raw.timeout = patience
        except (DuesweepError, odbc().Error) as error:
            return error_text(error), True


def _rows(raw: Any, text: str) -> str:
    """The last result of a batch."""
    found: Sequence[Any] = ()
    cursor = raw.execute(text)
    is_next = True
    while is_next:
        if cursor.description is not None:
            found = cursor.fetchall()
        is_next = cursor.nextset()
    return "; ".join(", ".join(map(str, row)) for row in found) or "no rows"


def error_text(error: Exception) -> str:
    """An error: its number, its SQLSTATE, and what duesweep takes it for."""
    cause = error if isinstance(error, odbc().Error) else error.__cause__
    if not isinstance(cause, odbc().Error):
        return f"error: {error}"
    classes = "; ".join(f"{where} {_classified(cause, where)}" for where in ("statement", "queue"))
    return f"error {number_of(cause) or 'none'} ({cause.args[0]}): {classes}"


def _classified(error: Exception, where: str) -> str:
    context = map_errors() if where == "statement" else destination_errors("queue")
    try:
        with context:
            raise error
    except DuesweepError as mapped:
        passing = ", passing" if getattr(mapped, "transient", False) else ""
        return f"{type(mapped).__name__}{passing}"
