"""The evidence as one page of Markdown: questions with their answers, reports, broken-off parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_OPEN = "*"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server's database to a question, and the expected one, which may have `*`."""

    question: str
    where: str
    answer: str
    expected: str = _OPEN

    @property
    def is_expected(self) -> bool:
        """Whether duesweep may rely on it."""
        return fnmatchcase(self.answer, self.expected)


@dataclass(frozen=True, slots=True)
class Figures:
    """A part's own report. `is_good`: whether it ended as it should."""

    title: str
    text: str
    is_good: bool


@dataclass(slots=True)
class Evidence:
    """Everything that a run has found until now."""

    made_by: str
    servers: list[tuple[str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    figures: list[Figures] = field(default_factory=list)
    broken_off: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether everything was asked, and is as expected."""
        good = [one.is_expected for one in self.answers] + [one.is_good for one in self.figures]
        return bool(good) and all(good) and not self.broken_off

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield "# Evidence: SQL Server\n"
        yield f"{self.made_by}\n"
        expected = [one for one in self.answers if one.is_expected]
        yield (
            f"**{len(expected)} of {len(self.answers)} answers are as duesweep expects them; "
            f"{sum(one.is_good for one in self.figures)} of {len(self.figures)} reports are good; "
            f"{len(self.broken_off)} parts broke off.**\n"
        )
        yield from _table(("server", "version, edition, collation"), self.servers)
        if self.broken_off:
            yield "## Broken off\n"
            yield "\n".join(f"- {_cell(one)}" for one in self.broken_off) + "\n"
        others = [one for one in self.answers if not one.is_expected]
        if others:
            yield "## Other answers than expected\n"
            rows = [(one.where, one.question, one.expected, one.answer) for one in others]
            yield from _table(("server", "question", "expected", "answer"), rows)
        yield "## Questions and answers\n"
        yield "`*` is an open question, on whose answer nothing relies.\n"
        yield from _table(("question", "expected", "answers"), list(self._by_question()))
        for one in self.figures:
            yield f"## {one.title}\n"
            yield f"{one.text}\n"

    def _by_question(self) -> Iterator[tuple[str, str, str]]:
        by_question: dict[str, list[Answer]] = {}
        for one in self.answers:
            by_question.setdefault(one.question, []).append(one)
        for question, answers in by_question.items():
            expected = " or ".join(dict.fromkeys(one.expected for one in answers))
            yield question, expected, _grouped(answers)


def _grouped(answers: Sequence[Answer]) -> str:
    """Each answer once, with the servers that gave it if others gave another one."""
    by_answer: dict[str, list[str]] = {}
    for one in answers:
        by_answer.setdefault(one.answer, []).append(one.where)
    if len(by_answer) == 1:
        return answers[0].answer
    return "; ".join(f"{answer} ({', '.join(where)})" for answer, where in by_answer.items())


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
