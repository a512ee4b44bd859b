import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

import pytest
from flood import bomb, flooding, repeated
from polling import until
from web_page import web_page

from app.workspace import instructions
from app.workspace.instructions import MAX_PAGE_BYTES, MAX_PAGES, InstructionPages

Make = Callable[..., InstructionPages]
AT_ONCE = {"first_wait": 5.0, "refresh": 0.0}
"""A page is asked for again each time that it is used."""


@pytest.fixture
async def made() -> AsyncIterator[Make]:
    all_made: list[InstructionPages] = []

    def make(**seconds: float) -> InstructionPages:
        all_made.append(InstructionPages(**seconds))
        return all_made[-1]

    yield make
    async with asyncio.timeout(60):  # also what hangs
        for pages in all_made:
            await pages.close()


async def text(pages: InstructionPages, url: str) -> str:
    ((_, found),) = await pages.texts([url])
    return found


async def until_text(pages: InstructionPages, url: str, wanted: str) -> None:
    async with asyncio.timeout(60):
        while await text(pages, url) != wanted:
            await asyncio.sleep(0.005)


async def test_a_page_is_fetched_once_also_by_those_who_ask_at_once(made: Make) -> None:
    pages = made()
    async with web_page("be kind") as page:
        assert await asyncio.gather(*(text(pages, page.url) for _ in range(5))) == ["be kind"] * 5
        assert [await text(pages, page.url) for _ in range(3)] == ["be kind"] * 3
        assert len(page.requests) == 1
    assert await text(pages, page.url) == "be kind"


async def test_an_old_page_is_used_while_it_is_fetched_again(made: Make) -> None:
    pages = made(first_wait=0.5, refresh=0.0)
    async with web_page("old") as page:
        await until_text(pages, page.url, "old")
        page.answering.clear()
        page.body = "new"
        async with asyncio.timeout(20):
            assert await text(pages, page.url) == "old"
        page.answering.set()
        await until_text(pages, page.url, "new")


async def test_pages_that_hang_are_waited_for_once_and_side_by_side(made: Make) -> None:
    pages = made(first_wait=0.5)
    async with web_page(hangs=True) as one, web_page(hangs=True) as two, web_page("here") as three:
        urls = [one.url, two.url, three.url]
        await until_text(pages, three.url, "here")
        began = time.monotonic()
        assert await pages.texts(urls) == list(zip(urls, ["", "", "here"], strict=True))
        assert 0.45 < time.monotonic() - began < 20
        began = time.monotonic()
        for _ in range(50):
            await pages.texts(urls)
        assert time.monotonic() - began < 20
        one.body = "late"
        one.answering.set()
        await until_text(pages, one.url, "late")
        assert len(one.requests) == len(two.requests) == 1


async def test_a_page_that_cannot_be_had_says_nothing_and_is_not_asked_for_again_at_once(
    made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pages = made()
    async with web_page("sorry", status="404 Not Found") as missing:
        assert [await text(pages, missing.url) for _ in range(3)] == [""] * 3
        assert len(missing.requests) == 1
    for url in ("http://[bad", "http://a\0b/", "http://127.0.0.1:1/"):
        assert await text(pages, url) == ""
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(logged) == 4 and "404" in logged[0]


async def test_a_failure_is_logged_once_and_the_last_text_stays(made: Make, caplog: pytest.LogCaptureFixture) -> None:
    pages = made(**AT_ONCE)
    async with web_page("be kind") as page:
        assert await text(pages, page.url) == "be kind"
        page.status, page.body = "503 Service Unavailable", "busy"
        for count in range(2, 5):
            assert await text(pages, page.url) == "be kind"
            await until(lambda count=count: len(page.statuses) >= count)
        assert sum("503" in record.getMessage() for record in caplog.records) == 1
        page.status = "404 Not Found"
        await until_text(pages, page.url, "")


async def test_a_huge_page_is_cut_a_compressed_one_left_alone_and_an_unknown_character_set_does_no_harm(made: Make) -> None:
    async with web_page("x" * (MAX_PAGE_BYTES + 10), content_type="text/plain; charset=klingon") as page:
        assert await text(made(), page.url) == "x" * MAX_PAGE_BYTES
    with flooding() as flood:
        flood.sends(lambda: iter([bomb(50_000_000)]), content_encoding="gzip", content_type="text/plain")
        assert await text(made(), flood.url) == ""
        flood.sends(lambda: repeated(b"x", 20_000_000), content_type="text/plain")
        assert await text(made(), flood.url) == "x" * MAX_PAGE_BYTES


async def test_so_many_pages_are_kept(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PAGES >= 16
    monkeypatch.setattr(instructions, "MAX_PAGES", 2)
    pages = made()
    async with web_page("1") as one, web_page("2") as two, web_page("3") as three:
        for page in (one, two, one, three, one, two):
            await text(pages, page.url)
        assert [len(page.requests) for page in (one, two, three)] == [1, 2, 1]
        for _ in range(3):
            assert await pages.texts([one.url, two.url, three.url]) == [(one.url, "1"), (two.url, "2")]
        assert len(three.requests) == 1, "pages that would put each other out are left out"
