"""A link to a page shows the page's title or words of a sentence, not the name of its file."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")]
_LINK_BY_FILE_NAME = re.compile(r"\[`?[\w./-]+\.(?:md|ipynb)`?\]\([^)]*\)")


def test_no_link_to_a_page_shows_the_name_of_its_file() -> None:
    found = {
        page.relative_to(ROOT).as_posix(): links
        for page in _PAGES
        if (links := _LINK_BY_FILE_NAME.findall(page.read_text(encoding="utf-8")))
    }

    assert found == {}
