"""Our texts avoid the words and phrases of proof/words.txt."""

from pathlib import Path

import pytest

from proof.words import (
    count,
    files_of,
    hand_written,
    is_counted,
    passages,
    read_patterns,
)

_PATTERNS = read_patterns()


def _cases(file: str, text: str) -> list[str]:
    """The phrases to avoid in a text, as they stand in it."""
    found = count({file: text}, _PATTERNS)
    return [
        case.text.partition("[")[2].partition("]")[0]
        for folder in found.values()
        for case in folder.cases
    ]


def test_our_texts_have_no_case_and_no_longer_line() -> None:
    counts = count(files_of(), _PATTERNS)

    found = [case for one in counts.values() for case in [*one.cases, *one.long_lines]]

    assert found == []


def test_pages_stay_short() -> None:
    pages = files_of(["README.md", "docs"])

    assert hand_written(pages["README.md"]) <= 900
    assert sum(hand_written(pages[file]) for file in pages if is_counted(file)) <= 22_000


def test_blocks_of_code_and_generated_parts_are_not_written_by_hand() -> None:
    page = """
Two words, `and code` - also.
```
not this
```
<!-- settings: begin -->
| not | this |
<!-- settings: end -->
<!-- nor this -->
"""
    assert hand_written(page) == 5


def test_each_pattern_has_a_reason() -> None:
    assert len(_PATTERNS) > 30
    assert all(pattern.reason for pattern in _PATTERNS)


@pytest.mark.parametrize(
    ("sentence", "phrase"),
    [
        ("It shows what is due.", "what is"),
        ("It prints what a sweep exhausted.", "what a sweep"),
        ("A run reads what\nwas left.", "what was"),
        ("Spark starts where there is much work.", "where there is"),
        ("Where nobody waits, it ends.", "Where nobody"),
        ("The sweep goes on.", "goes on"),
        ("It stops after so many seconds.", "so many"),
        ("Errors are told in words.", "told in"),
        ("The ledger is written, too.", ", too"),
    ],
)
def test_phrase_is_found(sentence: str, phrase: str) -> None:
    assert [" ".join(each.split()) for each in _cases("docs/page.md", sentence)] == [phrase]


@pytest.mark.parametrize(
    "sentence",
    [
        "It says what happened and what to do.",
        "What is due? What did a sweep leave?",
        "The queue where the message is delivered.",
        "It came too late.",
    ],
)
def test_plain_sentence_has_no_case(sentence: str) -> None:
    assert _cases("docs/page.md", sentence) == []


def test_code_of_a_page_is_no_text_but_for_long_spans() -> None:
    page = """
`what is due` and [a page](what/is/anew.md)
```
what is due
```
`print what is due to all of them`
"""
    assert _cases("docs/page.md", page) == ["what is"]


def test_comments_docstrings_and_messages_of_the_code_are_texts() -> None:
    code = '''
"""What is due."""
# It is written
# anew.
what_is = "what is"  # is told
raise Error(f"{name} goes on with the next batch")
text = "SELECT what is due to them"
'''
    found = ["What is", "anew", "goes on", "is told"]
    assert sorted(_cases("lib/duesweep/core/one.py", code)) == sorted(found)


def test_all_kinds_of_files_are_read() -> None:
    read = set[str]()
    for file, text in files_of().items():
        suffix = Path(file).suffix
        # One file of a kind is enough.
        if suffix not in read and passages(file, text):
            read.add(suffix)

    assert {".md", ".py", ".sql", ".toml", ".yml", ".ipynb", ".sh", ""} <= read
