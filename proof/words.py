"""Count the words and phrases that our texts avoid.

`proof/run words` lists the cases and the longer lines of pages, and prints the counts of each
folder; `proof/run words PATH...` reads these pages and folders only. proof/words.txt has the
patterns. A test finds no case anywhere.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROOF = Path(__file__).resolve().parent
ROOT = PROOF.parent
PATTERNS = PROOF / "words.txt"
LONGEST_LINE = 120
# How deep the folders are that are counted apart: docs/decisions, lib/duesweep/core.
_DEPTHS = {"docs": 2, "lib": 3}
_WORD = re.compile(r"[A-Za-z][\w'-]*")
# A string of the code that a person reads: it has three words in a row.
_PROSE = re.compile(r"[A-Za-z]{2,},? [a-z]+ [a-z]{2,}")
_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH)\b")
_SENTENCE_END = re.compile(r"[.!?](?=[\s\"')*]|$)|\n\s*\n")
_BLANK = re.compile(r"[^\n]")


@dataclass(frozen=True)
class Pattern:
    """One line of proof/words.txt."""

    expression: re.Pattern[str]
    reason: str


@dataclass(frozen=True)
class Case:
    """A phrase to avoid, at a line of a file; or a line that is too long."""

    file: str
    line: int
    text: str
    reason: str


@dataclass
class Count:
    """The words of a folder, and the cases in them."""

    words: int = 0
    cases: list[Case] = field(default_factory=list)
    long_lines: list[Case] = field(default_factory=list)


def read_patterns(file: Path = PATTERNS) -> list[Pattern]:
    """Read the patterns. Raises ValueError for a line without a reason."""
    found = []
    for line in file.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            expression, reason = re.split(r" {2,}", line.strip(), maxsplit=1)
            spaced = expression.replace(" ", r"(?:[ \t]*\n[ \t]*|[ \t]+)")
            found.append(Pattern(re.compile(spaced, re.IGNORECASE | re.MULTILINE), reason))
    return found


def folder_of(path: str) -> str:
    """The folder that a file counts in."""
    if path in {"docs/parity.md", "bench/README.md"}:
        return path
    *folders, name = path.split("/")
    if not folders:
        return name if name.endswith(".md") else "root"
    return "/".join(folders[: _DEPTHS.get(folders[0], 1)])


def count(texts: Mapping[str, str], patterns: Sequence[Pattern]) -> dict[str, Count]:
    """Words and cases by folder. `texts` has texts by the paths of their files."""
    counts: dict[str, Count] = defaultdict(Count)
    for file, text in texts.items():
        found = counts[folder_of(file)]
        for first, passage in passages(file, text):
            found.words += len(_WORD.findall(passage))
            found.cases += _cases(file, first, passage, patterns)
        if file.endswith(".md"):
            found.long_lines += _long_lines(file, text)
    return dict(sorted(counts.items()))


def is_counted(file: str) -> bool:
    """Whether a file is a page of docs that counts: the table of parity does not."""
    return file.startswith("docs/") and file.endswith(".md") and file != "docs/parity.md"


def files_of(paths: Sequence[str] = ()) -> dict[str, str]:
    """The texts that we read: of all files of the repository, or of these paths."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [file for file in sorted(set(listed.splitlines())) if _reader(file)]
    return {
        file: (ROOT / file).read_text("utf-8")
        for file in files
        if (ROOT / file).is_file() and not (ROOT / file).is_symlink()
    }


def passages(file: str, text: str) -> list[tuple[int, str]]:
    """The passages that a person reads in a file, each with the number of its first line."""
    reader = _reader(file)
    return list(reader(text)) if reader else []


_Reader = Callable[[str], Iterator[tuple[int, str]]]


def _reader(file: str) -> _Reader | None:
    path = Path(file)
    if file.startswith("tests/golden/recorded/"):
        return None
    if path.suffix == ".py":
        return _docstrings_and_comments if path.parts[0] == "tests" else _python
    if path.suffix == ".sql" and path.parts[0] == "lib":
        return _comments(r"--")
    if (
        path.suffix in {".sh", ".toml", ".yaml", ".conf"}
        or file in _SCRIPTS
        or "forms" in path.parts
    ):
        return _comments("#")
    readers: dict[str, _Reader] = {".md": _page, ".ipynb": _notebook, ".yml": _whole}
    return readers.get(path.suffix)


_SCRIPTS = {".ci/run", "bench/run", "bench/faults", "proof/run", "tests/run", "Dockerfile"}


def _whole(text: str) -> Iterator[tuple[int, str]]:
    yield 1, text


def _page(text: str) -> Iterator[tuple[int, str]]:
    """A page without its blocks of code, short code spans and the targets of links."""
    for code in (
        r"^ *```.*?^ *```[^\n]*$",
        r"<!--.*?-->",
        r"(?<=\])\([^)\s]*\)",
        r"https?://\S+",
        r"`[^`\s]+(?:\s+[^`\s]+){0,3}`",
    ):
        text = re.sub(code, _blanked, text, flags=re.MULTILINE | re.DOTALL)
    yield 1, text.replace("[", " ").replace("]", " ")


def hand_written(text: str) -> int:
    """The words of a page without blocks of code and the parts that a test writes."""
    text = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(any(map(str.isalnum, word)) for word in text.split())


def _blanked(code: re.Match[str]) -> str:
    """As many characters and lines, and one word that no pattern has."""
    blank = _BLANK.sub(" ", code[0])
    return f"¤{blank[1:]}" if code[0].startswith("`") else blank


def _notebook(text: str) -> Iterator[tuple[int, str]]:
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        yield from _page(source) if cell["cell_type"] == "markdown" else _comments("#")(source)


def _comments(mark: str) -> _Reader:
    """Comments, also after code. Neighbouring lines are one passage."""
    comment = re.compile(rf"(?:^|\s){mark}+(?:\s(.*))?$")

    def read(text: str) -> Iterator[tuple[int, str]]:
        block: list[str] = []
        for number, line in enumerate([*text.splitlines(), ""], 1):
            if found := comment.search(line):
                block.append(found[1] or "")
            elif block:
                yield number - len(block), _without_code("\n".join(block))
                block = []

    return read


def _docstrings_and_comments(text: str) -> Iterator[tuple[int, str]]:
    yield from _python_comments(text)
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and (said := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, _without_code(said)


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and all strings that a person reads: help, messages, errors."""
    yield from _python_comments(text)
    for line, string in _strings(ast.parse(text)):
        if _PROSE.search(string) and not _SQL.match(string):
            yield line, _without_code(string)


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        pieces = (
            str(piece.value) if isinstance(piece, ast.Constant) else "¤" for piece in node.values
        )
        yield node.lineno, "".join(pieces)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield last - len(block) + 1, _without_code("\n".join(block))
                block = []
            block.append(token.string.lstrip("#!"))
            last = token.start[0]
    if block:
        yield last - len(block) + 1, _without_code("\n".join(block))


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\s]+(?:\s+[^`\s]+){0,3}`", _blanked, text)


def _cases(file: str, first: int, passage: str, patterns: Sequence[Pattern]) -> Iterator[Case]:
    taken: set[int] = set()
    for pattern in patterns:
        for match in pattern.expression.finditer(passage):
            places = set(range(match.start(), match.end()))
            if places & taken or _is_question(passage, match.end()):
                continue
            taken |= places
            line = first + passage.count("\n", 0, match.start())
            yield Case(file, line, _around(passage, match), pattern.reason)


def _is_question(passage: str, start: int) -> bool:
    end = _SENTENCE_END.search(passage, start)
    return end is not None and end[0] == "?"


def _around(passage: str, match: re.Match[str]) -> str:
    before = passage[max(0, match.start() - 25) : match.start()]
    after = passage[match.end() : match.end() + 25]
    return " ".join(f"{before}[{match[0].strip()}]{after}".split())


def _long_lines(file: str, text: str) -> Iterator[Case]:
    """Rows of tables cannot be broken, nor outputs of commands, so these do not count."""
    text = re.sub(r"^ *```.*?^ *```$", _lines_of, text, flags=re.MULTILINE | re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_LINE and not line.lstrip().startswith("|"):
            reason = f"{len(line)} characters, at most {LONGEST_LINE}"
            yield Case(file, number, f"{line[:60]}…", reason)


def _lines_of(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def table(counts: Mapping[str, Count]) -> str:
    """The counts of each folder."""
    head = ("folder", "words", "cases", "per 1,000", "long lines")
    rows: list[tuple[object, ...]] = [head]
    for folder, found in counts.items():
        cases = len(found.cases)
        rate = f"{1000 * cases / max(1, found.words):.1f}"
        rows.append((folder, found.words, cases, rate, len(found.long_lines)))
    return "\n".join(f"{row[0]:28}" + "".join(f"{one:>11}" for one in row[1:]) for row in rows)


def main() -> int:
    """Print the cases and the counts."""
    parser = argparse.ArgumentParser(prog="proof/run words", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="read only these")
    options = parser.parse_args()
    counts = count(files_of(options.paths), read_patterns())
    for found in counts.values():
        for case in [*found.cases, *found.long_lines]:
            print(f"{case.file}:{case.line}: {case.text}  ({case.reason})")
    print(table(counts))
    pages = {file: hand_written(text) for file, text in files_of(["README.md", "docs"]).items()}
    rest = sum(words for file, words in pages.items() if is_counted(file))
    print(f"hand-written words: README.md {pages['README.md']:,}, docs {rest:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
