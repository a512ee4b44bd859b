"""HTML as markdown or as plain text, for a model to read."""

import re
from html.parser import HTMLParser

_NOT_CONTENT = frozenset({"script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "head"})
_BLOCKS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main
    nav ol option p pre section table tr ul""".split()  # noqa: SIM905
)
_CELLS = frozenset({"td", "th"})
_BLANK_LINES = re.compile(r"\n{3,}")
_SPACES = re.compile(r"[ \t\r\n\f]+")


def to_markdown(html: str) -> str:
    """Headings with `#`, no scripts, styles or images' data. Falls back to the text where the nesting is too deep to convert."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    try:
        soup = BeautifulSoup(html, "html.parser")
        for element in soup.find_all(sorted(_NOT_CONTENT)):
            element.decompose()
        markdown: str = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    except RecursionError:
        return to_text(html)
    return _tidy(markdown)


def to_text(html: str) -> str:
    """What a reader would see: each block on lines of its own, no markup."""
    extractor = _TextExtractor()
    extractor.feed(html)
    extractor.close()
    lines = (_SPACES.sub(" ", line).strip() for line in "".join(extractor.pieces).split("\n"))
    return _tidy("\n".join(lines))


def _tidy(text: str) -> str:
    return _BLANK_LINES.sub("\n\n", text).strip()


class _TextExtractor(HTMLParser):
    """Gathers the text outside of elements that show none. Not recursive, whatever the nesting."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._skipped: str | None = None
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped is None and tag in _NOT_CONTENT:
            self._skipped = tag
        if tag == self._skipped:
            self._depth += 1
        self._separate(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._separate(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipped:
            self._depth -= 1
            if self._depth == 0:
                self._skipped = None
        self._separate(tag)

    def handle_data(self, data: str) -> None:
        if self._skipped is None:
            self.pieces.append(_SPACES.sub(" ", data))

    def _separate(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag in _CELLS:
            self.pieces.append(" ")
