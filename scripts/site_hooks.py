"""What mkdocs does not do by itself: links from pages to files outside of docs/.

A link to a page leads to that page; a link to any other file of the checkout to a copy of it, as
text, below source/. So the same links work in the checkout and on the site.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parents[1]
_DOCS = _ROOT / "docs"
# Pages that are not in docs/, and their names on the site.
_OUTSIDE = {
    _ROOT / "README.md": "index.md",
    _ROOT / "CONTRIBUTING.md": "contributing.md",
    _ROOT / "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(
    r'(?P<before>\]\(|^\[[^\]]+\]: |\b(?:src|srcset)=")(?P<to>[^)\s"#]+)', re.MULTILINE
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for path, name in _OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where their targets are on the site."""
    if page.parent is None:
        # No other page is in its section: the menu would have one entry, this page.
        page.meta["hide"] = ["navigation"]
    folder = Path(str(page.file.abs_src_path)).parent

    def relink(link: re.Match[str]) -> str:
        target = (folder / link["to"]).resolve()
        if not target.exists() or not target.is_relative_to(_ROOT):
            return link[0]
        name = _name(target)
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=_text(target)))
        return link["before"] + os.path.relpath(name, Path(page.file.src_uri).parent)

    return _LINK.sub(relink, markdown)


def _name(target: Path) -> str:
    if target in _OUTSIDE:
        return _OUTSIDE[target]
    if target.is_relative_to(_DOCS):
        return target.relative_to(_DOCS).as_posix()
    name = target.relative_to(_ROOT).as_posix()
    return f"source/{name}/files.txt" if target.is_dir() else f"source/{name}.txt"


def _text(target: Path) -> str:
    if target.is_dir():
        return "".join(f"{each.name}\n" for each in sorted(target.iterdir()))
    return target.read_text(encoding="utf-8")
