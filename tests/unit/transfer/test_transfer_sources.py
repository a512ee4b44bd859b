"""Where documents are read from: files, and addresses within their limits."""

from ipaddress import ip_address
from pathlib import Path

import orjson
import pytest
from web_page import web_page

from app.tools.web import Address, PinnedRequests
from app.transfer.importing import UnreadableSource, read_source

DOCUMENT = '{"info": {}}'


async def at_loopback(_host: str, _port: int) -> list[Address]:
    return [ip_address("127.0.0.1")]


PUBLIC = PinnedRequests(resolve=at_loopback)
ALL = PinnedRequests(allow_private=True)


async def test_a_file_is_read_within_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(DOCUMENT)
    assert await read_source(str(file), PUBLIC, len(DOCUMENT)) == DOCUMENT.encode()
    with pytest.raises(UnreadableSource, match="OPENSESSION_MAX_IMPORT_BYTES"):
        await read_source(str(file), PUBLIC, len(DOCUMENT) - 1)
    with pytest.raises(UnreadableSource, match="Is a directory"):
        await read_source(str(tmp_path), PUBLIC, 100)


async def test_an_address_is_read_within_its_limit() -> None:
    async with web_page(DOCUMENT) as page:
        assert await read_source(page.url, ALL, len(DOCUMENT)) == DOCUMENT.encode()
        with pytest.raises(UnreadableSource, match="larger than"):
            await read_source(page.url, ALL, len(DOCUMENT) - 1)


async def test_a_name_that_leads_to_a_private_address_is_not_asked() -> None:
    async with web_page(DOCUMENT) as page:
        for host in ("127.0.0.1", "public.example"):
            with pytest.raises(UnreadableSource, match=r"not a public address.*OPENSESSION_ALLOW_PRIVATE_ADDRESSES"):
                await read_source(page.url.replace("127.0.0.1", host), PUBLIC, 100)
        assert page.requests == []


async def test_what_the_server_answers_is_told() -> None:
    async with web_page(DOCUMENT, status="404 Not Found") as page:
        with pytest.raises(UnreadableSource, match="404"):
            await read_source(page.url, ALL, 100)


async def test_a_share_link_is_read_as_a_document() -> None:
    async with web_page('{"session": {"id": "ses_1"}, "messages": []}') as page:
        link = page.url.replace("/rules.md", f"/team/s/{'0a' * 20}")
        document = orjson.loads(await read_source(link, ALL, 1000))
        assert page.requests[0].startswith(f"GET /team/s/{'0a' * 20}/session ")
        assert document == {"info": {"id": "ses_1", "projectID": "", "directory": ""}, "messages": []}
        for other in ("<html>", "[]", '{"session": 1}', "{}"):
            page.body = other
            with pytest.raises(UnreadableSource, match="no share link"):
                await read_source(link, ALL, 1000)
