import asyncio
import tracemalloc

import pytest

from app.tool.transcript import LivePreview, Transcript, shorten


def test_a_character_split_between_chunks_is_whole() -> None:
    transcript = Transcript()
    for byte in "aé日".encode():
        transcript.add(bytes([byte]))
    assert transcript.preview == transcript.text() == "aé日"


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    transcript = Transcript()
    transcript.add(b"a\xffb")
    assert transcript.text() == "a\ufffdb"


def test_output_within_the_limit_is_kept_whole() -> None:
    transcript = Transcript(limit=10)
    for digit in b"0123456789":
        transcript.add(bytes([digit]))
    assert transcript.text() == "0123456789"


def test_of_too_much_output_the_middle_is_dropped_and_counted() -> None:
    transcript = Transcript(limit=10)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        transcript.add(letter.encode())
    text = transcript.text()
    assert text.startswith("abcde\n")
    assert text.endswith("\nvwxyz")
    assert " 16 bytes " in text


def test_one_chunk_larger_than_the_limit_is_cut_too() -> None:
    transcript = Transcript(limit=10)
    transcript.add(b"a" * 100)
    transcript.add(b"b" * 3)
    assert transcript.text().count("a") + transcript.text().count("b") < 30
    assert transcript.text().endswith("aabbb")


def test_memory_stays_bounded() -> None:
    tracemalloc.start()
    try:
        transcript = Transcript(limit=1000)
        for _ in range(1000):
            transcript.add(b"x" * 700)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_the_preview_is_the_beginning_and_says_that_it_is_cut() -> None:
    transcript = Transcript(preview_limit=4)
    transcript.add(b"abc")
    assert transcript.preview == "abc"
    transcript.add(b"defgh")
    transcript.add(b"ij")
    assert transcript.preview == "abcd\n\n..."


def test_shorten_leaves_short_text_alone() -> None:
    assert shorten("x" * 30_000) == "x" * 30_000
    assert shorten("x" * 30_001) == "x" * 30_000 + "\n\n..."


class Publisher:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.published = asyncio.Event()

    async def __call__(self, text: str) -> None:
        self.seen.append(text)
        self.published.set()


async def test_the_first_state_is_published_at_once_and_the_following_ones_together() -> None:
    publisher = Publisher()
    async with LivePreview(publisher, interval=30) as live:
        live.show("1")
        await publisher.published.wait()
        for text in ("12", "123", "1234"):
            live.show(text)
            await asyncio.sleep(0)
        assert publisher.seen == ["1"]
    assert publisher.seen == ["1", "1234"]


async def test_after_the_interval_the_latest_state_is_published_without_new_output() -> None:
    publisher = Publisher()
    async with LivePreview(publisher, interval=0.02) as live:
        live.show("1")
        await publisher.published.wait()
        publisher.published.clear()
        live.show("12")
        async with asyncio.timeout(60):
            await publisher.published.wait()
        assert publisher.seen == ["1", "12"]


async def test_the_same_text_is_not_published_twice() -> None:
    publisher = Publisher()
    async with LivePreview(publisher, interval=0) as live:
        live.show("same")
        await publisher.published.wait()
        live.show("same")
    assert publisher.seen == ["same"]


async def test_a_failure_to_publish_is_raised() -> None:
    async def fail(text: str) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        async with LivePreview(fail) as live:
            live.show("x")
