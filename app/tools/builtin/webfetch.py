"""Fetches a page of the web, and converts HTML to markdown or plain text."""

import asyncio
import codecs
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from app.schema.base import Wire
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult, ToolTimeout
from app.tools.web import AddressDenied, FetchFailed, PinnedRequests, WebPage, fetch

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

PageFormat = Literal["text", "markdown", "html"]

DEFAULT_SECONDS = 30.0
MAX_SECONDS = 120.0
MAX_BYTES = 5 * 1024 * 1024
_BROWSER = "Mozilla/5.0 (compatible; Opensession)"
_ACCEPT: dict[PageFormat, str] = {
    "markdown": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
    "text": "text/plain, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
    "html": "text/html, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
}
_META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_META_WITHIN = 2048
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CHARACTER_SETS = ("ascii", "big5", "cp", "euc", "gb", "iso", "koi8", "mac", "shift_jis", "tis", "utf-")
_AS_BROWSERS_READ = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "tis-620": "cp874",
}
"""Character sets that stand for larger ones: most pages that name these use characters of those, such as quotation marks."""
_TEXT_WITH_NULS = ("utf-16", "utf-32")

_NOT_CONTENT = frozenset({"script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "head"})
_BLOCKS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main
    nav ol option p pre section table tr ul""".split()  # noqa: SIM905
)
_CELLS = frozenset({"td", "th"})
_BLANK_LINES = re.compile(r"\n{3,}")
_SPACES = re.compile(r"[ \t\r\n\f]+")


class WebFetchParameters(Wire):
    url: Annotated[str, Field(description="Address of the page, starting with http:// or https://")]
    format: Annotated[PageFormat, Field(description="What to make of HTML: markdown, text (no markup) or html (as it is)")] = (
        "markdown"
    )
    timeout: Annotated[
        float | None, Field(gt=0, description=f"Seconds to wait, {DEFAULT_SECONDS:g} if absent, at most {MAX_SECONDS:g}")
    ] = None


class WebFetchTool(Tool[WebFetchParameters]):
    """`requests` sends to checked addresses only."""

    id = "webfetch"
    parameters = WebFetchParameters

    def __init__(self, requests: PinnedRequests) -> None:
        self._requests = requests

    async def execute(self, args: WebFetchParameters, ctx: ToolContext) -> ToolResult:
        if not args.url.lower().startswith(("http://", "https://")):
            raise ToolError("The URL must start with http:// or https://")
        about = args.model_dump(exclude_none=True)
        await ctx.host.require_permission(ToolPermission(self.id, [args.url], ["*"], about))
        seconds = min(args.timeout or DEFAULT_SECONDS, MAX_SECONDS)
        headers = {"Accept": _ACCEPT[args.format], "Accept-Language": "en-US,en;q=0.9", "User-Agent": _BROWSER}
        try:
            async with asyncio.timeout(seconds):
                page = await fetch(self._requests, args.url, headers, MAX_BYTES)
                output = await asyncio.to_thread(_render, page, args.format)
        except TimeoutError:
            raise ToolTimeout(f"{args.url} did not answer within {seconds:g} seconds") from None
        except (FetchFailed, AddressDenied) as error:
            raise ToolError(str(error)) from error
        return ToolResult(title=f"{args.url} ({page.content_type})", output=output)


def _render(page: WebPage, wanted: PageFormat) -> str:
    text = _decode(page)
    if wanted == "html" or not _is_html(page):
        return text
    return to_markdown(text) if wanted == "markdown" else to_text(text)


def _is_html(page: WebPage) -> bool:
    return page.content_type.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")


def _decode(page: WebPage) -> str:
    encoding = _encoding(page)
    if b"\0" in page.body and not encoding.startswith(_TEXT_WITH_NULS):
        raise ToolError(f"{page.url} is not text but {page.content_type or 'binary data'}")
    return page.body.decode(encoding, errors="replace")


def _encoding(page: WebPage) -> str:
    """From the byte order mark, else the header, else the HTML, else UTF-8."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if page.body.startswith(mark):
            return encoding
    if in_header := re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", page.content_type, re.IGNORECASE):
        return _known_text_encoding(in_header[1]) or "utf-8"
    if in_html := _META_CHARSET.search(page.body[:_META_WITHIN]):
        return _known_text_encoding(in_html[1].decode("ascii", errors="replace")) or "utf-8"
    return "utf-8"


def _known_text_encoding(name: str) -> str | None:
    """Excludes Python's codecs that are not character sets (hex, idna, unicode_escape, …)."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return _AS_BROWSERS_READ.get(known, known) if known.startswith(_CHARACTER_SETS) else None


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
