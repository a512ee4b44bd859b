"""Reads a document from where a user has it: a file, standard input or a web address, which may be a share link."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from app.tool.web import AddressDenied, FetchFailed, PinnedRequests, fetch

STDIN = "-"
FETCH_SECONDS = 120.0

_SHARE_LINK = re.compile(r"(https?://[^?#]+/s/[0-9a-f]{40})/?", re.IGNORECASE)


class UnreadableSource(Exception):
    """The message says why, for the user."""


async def read_source(source: str, requests: PinnedRequests, max_bytes: int) -> bytes:
    """`source` is a path, `-` or an address. Raises UnreadableSource."""
    if source.lower().startswith(("http://", "https://")):
        return await _fetched(source, requests, max_bytes)
    if source == STDIN:
        return await asyncio.to_thread(_bounded, sys.stdin.buffer, "Standard input", max_bytes)
    return await asyncio.to_thread(_file, source, max_bytes)


def _file(path: str, max_bytes: int) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return _bounded(file, path, max_bytes)
    except OSError as error:
        raise UnreadableSource(f"{path} cannot be read: {error.strerror}") from error


def _bounded(stream: BinaryIO, name: str, max_bytes: int) -> bytes:
    body = stream.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnreadableSource(f"{name} has more than {max_bytes} bytes (OPENSESSION_MAX_IMPORT_BYTES)")
    return body


async def _fetched(url: str, requests: PinnedRequests, max_bytes: int) -> bytes:
    link = _SHARE_LINK.fullmatch(url)
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            page = await fetch(requests, f"{link[1]}/session" if link else url, {"Accept": "application/json"}, max_bytes)
    except TimeoutError:
        raise UnreadableSource(f"{url} was not read within {FETCH_SECONDS:g} seconds") from None
    except AddressDenied as denied:
        raise UnreadableSource(f"{denied}. OPENSESSION_ALLOW_PRIVATE_ADDRESSES=true allows private ones.") from denied
    except FetchFailed as failed:
        raise UnreadableSource(str(failed)) from failed
    return await asyncio.to_thread(_document_of_shared, page.body, url) if link else page.body


def _document_of_shared(body: bytes, url: str) -> bytes:
    """A conversation as visitors of a share link see it has no directory and no project: the import gives it both."""
    try:
        shared: dict[str, Any] = orjson.loads(body)
        info = {"projectID": "", "directory": "", **shared.pop("session")}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UnreadableSource(f"{url} is no share link of a server of this kind") from error
    return orjson.dumps({"info": info, **shared})
