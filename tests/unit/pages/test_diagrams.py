"""A reader sees diagrams as pictures: here, on a hosting site, and on the site of the pages."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench" / "README.md"]
# A language of diagrams, or lines that draw a box; a table that a program prints has cells.
_TEXT = re.compile(
    r"^ *```(?:mermaid|dot|graphviz|plantuml|d2|ditaa)|^[^│\n]*(?:-->|──▶|┌──[^┬\n]*┐$)",
    re.MULTILINE,
)
_PICTURE = re.compile(r'!\[(.*?)\]\((\S+?)\)|<img src="(\S+)" alt="(.*?)">', re.DOTALL)


def test_no_page_has_a_diagram_as_text() -> None:
    found = {
        page.relative_to(ROOT).as_posix(): match[0]
        for page in PAGES
        if (
            match := _TEXT.search(
                re.sub("<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
            )
        )
    }

    assert found == {}, "write docs/images/NAME.mmd, run scripts/diagrams.py, and show NAME.svg"


def test_pictures_are_drawn_from_their_sources() -> None:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "scripts" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    diagrams = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagrams)

    sources = {file.stem: file.read_text("utf-8") for file in IMAGES.glob("*.mmd")}
    pictures = {file.stem: file.read_text("utf-8") for file in IMAGES.glob("*.svg")}

    assert sources.keys() == pictures.keys()
    assert [
        name for name in sources if not pictures[name].startswith(diagrams.mark(sources[name]))
    ] == []


def test_pages_show_each_picture_with_a_text_for_those_who_do_not_see_it() -> None:
    shown: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        for alt, target, other_target, other_alt in _PICTURE.findall(text):
            shown[(page.parent / (target or other_target)).resolve().name] = alt or other_alt

    files = {file.name for kind in ("png", "svg") for file in IMAGES.glob(f"*.{kind}")}
    # The text of a picture counts for its forms in the dark and on a phone as well.
    assert files - shown.keys() == {"report-top-dark.png", "report-top-phone.png"}
    assert [name for name, alt in shown.items() if not alt.strip()] == []
