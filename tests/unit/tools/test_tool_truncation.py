"""Output that is too long: while a program runs, and where the model is told of it."""

import asyncio
import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from app.schema.config import ToolOutputConfig
from app.tools.command_output import CommandOutput, LivePreview
from app.tools.truncation import MAX_BYTES, RETENTION_MS, OutputStore
from app.util import clock


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "data" / "tool-output")


async def kept(store: OutputStore) -> Path:
    """What is kept of an output that was too long."""
    path = (await store.bound("x\n" * 3000, may_delegate=False)).output_path
    assert path
    return path


@pytest.mark.parametrize("text", ["", "short", "\n".join(["x"] * 2000), "x" * MAX_BYTES, "é" * (MAX_BYTES // 2)])
async def test_within_the_limits_nothing_changes(store: OutputStore, text: str) -> None:
    bounded = await store.bound(text, may_delegate=True)
    assert (bounded.text, bounded.truncated, bounded.output_path) == (text, False, None)
    await store.cleanup(clock.now_ms())
    assert not store.directory.exists()


NUMBERS = [str(number) for number in range(2003)]
LINE = "é" * 499


@pytest.mark.parametrize(
    ("text", "kept", "unit"),
    [
        pytest.param("\n".join(NUMBERS), "\n".join(NUMBERS[:2000]), "3 lines", id="lines"),
        pytest.param("\n".join([LINE] * 100), "\n".join([LINE] * 51), f"{999 * 49} bytes", id="bytes, at a line"),
        pytest.param("a" + "é" * 1_000_000, "a" + "é" * 25_599, f"{2_000_001 - 51_199} bytes", id="between characters"),
        pytest.param("\n" + "a" * 100_000, "\n" + "a" * 51_199, "48801 bytes", id="a huge line behind a blank one"),
    ],
)
async def test_too_much_is_cut_and_counted(store: OutputStore, text: str, kept: str, unit: str) -> None:
    bounded = await store.bound(text, may_delegate=False)
    shown, note, _hint = bounded.text.rsplit("\n\n", 2)
    assert bounded.truncated and shown == kept
    assert note == f"...{unit} truncated..."


async def test_the_whole_output_is_kept_for_this_user_alone_and_told_of(store: OutputStore) -> None:
    text = "é\n" * 30_000
    alone = await store.bound(text, may_delegate=False)
    assert alone.output_path is not None
    assert alone.output_path.parent == store.directory
    assert alone.output_path.name.startswith("tool_")
    assert alone.output_path.read_text() == text
    assert stat.S_IMODE(alone.output_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert str(alone.output_path) in alone.text and "task tool" not in alone.text and "offset" in alone.text
    delegating = await store.bound(text, may_delegate=True)
    assert str(delegating.output_path) in delegating.text and "task tool" in delegating.text
    assert alone.output_path != delegating.output_path


async def test_limits_can_be_set_and_configured(tmp_path: Path) -> None:
    for store in (OutputStore(tmp_path, max_lines=2, max_bytes=10), OutputStore(tmp_path).within(ToolOutputConfig(max_lines=2))):
        bounded = await store.bound("a\nb\nc", may_delegate=False)
        assert bounded.text.startswith("a\nb\n\n...1 lines truncated...")
        assert not (await store.within(ToolOutputConfig(max_lines=3)).bound("a\nb\nc", may_delegate=False)).truncated


async def test_text_that_is_no_utf8_is_made_so(store: OutputStore) -> None:
    assert (await store.bound("a\ud800b", may_delegate=False)).text == "a?b"
    assert (await store.bound("\udcff" * 60_000, may_delegate=False)).text.startswith("???")


async def test_cleanup_removes_what_is_older_than_a_week(store: OutputStore) -> None:
    old, new, other = await kept(store), await kept(store), store.directory / "notes.txt"
    other.write_text("not ours")
    now = clock.now_ms()
    for path in (old, other):
        os.utime(path, (now / 1000, (now - RETENTION_MS) / 1000 - 1))
    await store.cleanup(now)
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


async def test_what_another_server_removes_meanwhile_stops_no_cleanup(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [await kept(store) for _ in range(3)]
    look = Path.lstat

    def lose_first(self: Path) -> os.stat_result:
        if self == paths[0]:
            self.unlink(missing_ok=True)
        return look(self)

    monkeypatch.setattr(Path, "lstat", lose_first)
    await store.cleanup(clock.now_ms() + 2 * RETENTION_MS)
    assert list(store.directory.iterdir()) == []


async def test_an_output_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bounded = await OutputStore(tmp_path / "file").bound("line\n" * 5_000, may_delegate=True)
    assert bounded.truncated and bounded.output_path is None and "could not be kept" in bounded.text


# While a program runs.


def command_output(*chunks: bytes, limit: int = 10) -> CommandOutput:
    found = CommandOutput(limit=limit)
    for chunk in chunks:
        found.add(chunk)
    return found


def test_of_too_much_output_the_middle_is_dropped_and_counted() -> None:
    assert command_output(b"a\xffb").text() == "a\ufffdb"
    text = command_output(*(bytes([letter]) for letter in range(ord("a"), ord("z") + 1))).text()
    assert text.startswith("abcde\n") and text.endswith("\nvwxyz")
    assert " 16 bytes " in text
    text = command_output(b"a" * 100, b"b" * 3).text()
    assert text.count("a") + text.count("b") < 30 and text.endswith("aabbb"), "one chunk larger than the limit is cut too"


def test_memory_stays_bounded() -> None:
    tracemalloc.start()
    try:
        held = command_output(*(b"x" * 700 for _ in range(1000)), limit=1000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held.text() and size < 100_000


async def test_after_the_interval_the_latest_state_is_published_without_new_output() -> None:
    seen = asyncio.Queue[str]()
    async with asyncio.timeout(60), LivePreview(seen.put, interval=0.02) as live:
        live.show("1")
        assert await seen.get() == "1"
        live.show("12")
        assert await seen.get() == "12"


async def test_a_failure_to_publish_is_raised() -> None:
    async def fail(text: str) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        async with LivePreview(fail) as live:
            live.show("x")
