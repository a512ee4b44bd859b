import asyncio
import tracemalloc

import pytest

from app.tools.transcript import LivePreview, Transcript


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    transcript = Transcript()
    transcript.add(b"a\xffb")
    assert transcript.text() == "a\ufffdb"


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


class Publisher:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.published = asyncio.Event()

    async def __call__(self, text: str) -> None:
        self.seen.append(text)
        self.published.set()


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


async def test_a_failure_to_publish_is_raised() -> None:
    async def fail(text: str) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        async with LivePreview(fail) as live:
            live.show("x")
