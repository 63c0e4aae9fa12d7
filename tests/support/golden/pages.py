"""The text of a page of HTML, a line for each block or row of a table."""

from html.parser import HTMLParser

_BLOCKS = {"h1", "h2", "h3", "p", "tr", "li", "div", "section", "pre", "summary", "header"}
_CELLS = {"td", "th"}
_WORDS = {"span", "b", "strong", "em", "code", "a", "br", "button"}
_SILENT = {"style", "script", "svg"}


class _Text(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent = 0
        self.feed(html)

    def handle_starttag(self, tag: str, _: object) -> None:
        self._silent += tag in _SILENT
        self.parts.append(
            "\n" if tag in _BLOCKS else " | " if tag in _CELLS else " " if tag in _WORDS else ""
        )

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT
        self.parts.append("\n" if tag in _BLOCKS else " " if tag in _WORDS else "")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(" ".join(data.split()) if data.strip() else " " * bool(data))


def page_text(html: str) -> str:
    """What somebody reads on the page."""
    lines = (" ".join(line.split()).strip() for line in "".join(_Text(html).parts).splitlines())
    return "".join(f"{line}\n" for line in lines if line)
