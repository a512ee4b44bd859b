"""Fetches a page of the web, and converts HTML to markdown or plain text."""

import asyncio
import codecs
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Annotated, Literal
from weakref import WeakValueDictionary

from pydantic import Field

from app.project.sandbox.scope import Program
from app.schema.base import Wire
from app.tools import page_text, process
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult, ToolTimeout
from app.tools.web import AddressDenied, FetchFailed, PinnedRequests, WebPage, fetch
from app.util import environment, processes
from app.util.shared_threads import WORKING_FOR

PageFormat = Literal["text", "markdown", "html"]

DEFAULT_SECONDS = 30.0
MAX_SECONDS = 120.0
MAX_BYTES = 5 * 1024 * 1024
CONVERTED_AT_ONCE = 2
"""Pages of a user. Of one that is made for it the converter takes MAX_MEMORY_BYTES, until the call's time is over."""
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


class WebFetchParameters(Wire):
    url: Annotated[str, Field(description="Address of the page, starting with http:// or https://")]
    format: Annotated[PageFormat, Field(description="What to make of HTML: markdown, text (no markup) or html (as it is)")] = (
        "markdown"
    )
    timeout: Annotated[
        float | None, Field(ge=0, description=f"Seconds to wait, {DEFAULT_SECONDS:g} if absent, at most {MAX_SECONDS:g}")
    ] = None


class WebFetchTool(Tool[WebFetchParameters]):
    """`requests` sends to checked addresses only."""

    id = "webfetch"
    parameters = WebFetchParameters

    def __init__(self, requests: PinnedRequests) -> None:
        self._requests = requests
        self._converting = WeakValueDictionary[str, asyncio.Semaphore]()

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
                text = await asyncio.to_thread(_decode, page)
                output = await self._convert(text, args.format) if args.format != "html" and _is_html(page) else text
        except TimeoutError:
            raise ToolTimeout(f"{args.url} did not answer within {seconds:g} seconds") from None
        except (FetchFailed, AddressDenied) as error:
            raise ToolError(str(error)) from error
        return ToolResult(title=f"{args.url} ({page.content_type})", output=output)

    async def _convert(self, html: str, wanted: PageFormat) -> str:
        """Waits for other pages of the user. Raises ToolError."""
        async with self._converting.setdefault(WORKING_FOR.get().user, asyncio.Semaphore(CONVERTED_AT_ONCE)):
            return await _convert(html, wanted)


async def _convert(html: str, wanted: PageFormat) -> str:
    """Ends with the time of the call, however long the parser would take. Raises ToolError."""
    program = Program([sys.executable, "-I", page_text.__file__, wanted], Path("/"), environment.minimal())
    child = await process.spawn(program, processes.new_mark(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        output, _ = await child.communicate(html.encode(errors="replace"))
    finally:
        await asyncio.shield(process.end_group(child))
    if child.returncode:
        raise ToolError(f"The page cannot be converted to {wanted}: fetch it with the format html")
    return output.decode()


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
