"""HTML as Markdown or plain text. Run as a program of its own, which imports nothing of this server: on markup that is made for
it Python's parser computes for hours, and while it looks for the end of a tag no other thread of its process runs."""

import re
import resource
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

MAX_MEMORY_BYTES = 1024**3
MAX_CHARACTERS = 5_000_000
"""Of the text, which may be longer than the page."""

_NOT_CONTENT = frozenset({"script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "head"})
_BLOCKS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main
    nav ol option p pre section table tr ul""".split()  # noqa: SIM905
)
_CELLS = frozenset({"td", "th"})
_BLANK_LINES = re.compile(r"\n{3,}")
_SPACES = re.compile(r"[ \t\r\n\f]+")


def to_markdown(html: str) -> str:
    """Headings with `#`, no scripts or styles. Falls back to plain text if the nesting is too deep to convert."""
    from markdownify import MarkdownConverter

    try:
        markdown: str = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(_content(html))
    except RecursionError:
        return to_text(html)
    return _normalise_blank_lines(markdown)


def to_text(html: str) -> str:
    """The visible text, each block on its own lines. Not recursive, so that the nesting may have any depth."""
    lines = (_SPACES.sub(" ", line).strip() for line in "".join(_text_pieces(_content(html))).split("\n"))
    return _normalise_blank_lines("\n".join(lines))


def _content(html: str) -> "BeautifulSoup":
    """The document without elements that show no text."""
    from bs4 import BeautifulSoup
    from bs4.exceptions import ParserRejectedMarkup

    try:
        soup = BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup:  # for an unknown word after `<![`
        soup = BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")
    for element in soup.find_all(sorted(_NOT_CONTENT)):
        element.decompose()
    return soup


def _text_pieces(soup: "BeautifulSoup") -> list[str]:
    """The texts in order, with separators where blocks and cells begin and end."""
    from bs4.element import NavigableString, Tag

    pieces: list[str] = []
    open_tags: list[Tag] = []
    for node in soup.descendants:
        while open_tags and open_tags[-1] is not node.parent:
            pieces.append(_separator(open_tags.pop().name))
        if isinstance(node, Tag):
            pieces.append(_separator(node.name))
            if node.contents:
                open_tags.append(node)
        elif type(node) is NavigableString:  # a comment is a subclass
            pieces.append(_SPACES.sub(" ", node))
    return pieces


def _separator(tag: str) -> str:
    if tag in _BLOCKS:
        return "\n"
    return " " if tag in _CELLS else ""


def _normalise_blank_lines(text: str) -> str:
    return _BLANK_LINES.sub("\n\n", text).strip()


def main(wanted: str) -> None:
    """From standard input to standard output."""
    with suppress(ValueError, OSError):  # the limit is lower already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    html = sys.stdin.buffer.read().decode()
    text = to_markdown(html) if wanted == "markdown" else to_text(html)
    sys.stdout.buffer.write(text[:MAX_CHARACTERS].encode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1])
