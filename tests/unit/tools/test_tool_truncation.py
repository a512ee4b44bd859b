import os
import stat
from pathlib import Path

import pytest

from app.schema.config import ToolOutputConfig
from app.tools.truncation import MAX_BYTES, RETENTION_MS, OutputStore
from app.util import clock


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "data" / "tool-output")


async def preview(store: OutputStore, text: str) -> tuple[str, str]:
    """What is kept, and the note under it."""
    bounded = await store.bound(text, may_delegate=False)
    assert bounded.truncated
    kept, note, _hint = bounded.text.rsplit("\n\n", 2)
    return kept, note


@pytest.mark.parametrize("text", ["", "short", "\n".join(["x"] * 2000), "x" * MAX_BYTES, "é" * (MAX_BYTES // 2)])
async def test_within_the_limits_nothing_changes(store: OutputStore, text: str) -> None:
    bounded = await store.bound(text, may_delegate=True)
    assert (bounded.text, bounded.truncated, bounded.output_path) == (text, False, None)
    assert not store.directory.exists()


async def test_too_many_lines(store: OutputStore) -> None:
    kept, note = await preview(store, "\n".join(f"{number}" for number in range(2003)))
    assert kept.split("\n") == [f"{number}" for number in range(2000)]
    assert note == "...3 lines truncated..."


async def test_too_many_bytes_cut_at_a_line(store: OutputStore) -> None:
    line = "é" * 499
    kept, note = await preview(store, "\n".join([line] * 100))
    assert kept.split("\n") == [line] * 51
    assert note == f"...{(998 + 1) * 100 - 1 - len(kept.encode())} bytes truncated..."


async def test_one_huge_line_is_cut_between_characters(store: OutputStore) -> None:
    kept, note = await preview(store, "a" + "é" * 1_000_000)
    assert kept == "a" + "é" * ((MAX_BYTES - 1) // 2)
    assert note == f"...{2_000_001 - len(kept.encode())} bytes truncated..."


async def test_a_huge_line_behind_a_blank_one(store: OutputStore) -> None:
    kept, _ = await preview(store, "\n" + "a" * 100_000)
    assert kept == "\n" + "a" * (MAX_BYTES - 1)


async def test_the_whole_output_is_kept_for_this_user_alone(store: OutputStore) -> None:
    text = "é\n" * 30_000
    bounded = await store.bound(text, may_delegate=False)
    assert bounded.output_path is not None
    assert bounded.output_path.parent == store.directory
    assert bounded.output_path.name.startswith("tool_")
    assert bounded.output_path.read_text() == text
    assert stat.S_IMODE(bounded.output_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


async def test_the_hint_names_the_file_and_who_should_look(store: OutputStore) -> None:
    alone = await store.bound("x\n" * 3000, may_delegate=False)
    delegating = await store.bound("x\n" * 3000, may_delegate=True)
    assert str(alone.output_path) in alone.text and "task tool" not in alone.text and "offset" in alone.text
    assert str(delegating.output_path) in delegating.text and "task tool" in delegating.text
    assert alone.output_path != delegating.output_path


async def test_limits_can_be_set(tmp_path: Path) -> None:
    bounded = await OutputStore(tmp_path, max_lines=2, max_bytes=10).bound("a\nb\nc", may_delegate=False)
    assert bounded.text.startswith("a\nb\n\n...1 lines truncated...")


async def test_a_configuration_sets_limits(tmp_path: Path) -> None:
    store = OutputStore(tmp_path).within(ToolOutputConfig(max_lines=2))
    assert (await store.bound("a\nb\nc", may_delegate=False)).text.startswith("a\nb\n\n...1 lines truncated...")
    assert not (await store.within(ToolOutputConfig(max_lines=3)).bound("a\nb\nc", may_delegate=False)).truncated


async def test_text_that_is_no_utf8_is_made_so(store: OutputStore) -> None:
    assert (await store.bound("a\ud800b", may_delegate=False)).text == "a?b"
    assert (await store.bound("\udcff" * 60_000, may_delegate=False)).text.startswith("???")


async def test_cleanup_removes_what_is_older_than_a_week(store: OutputStore) -> None:
    old = (await store.bound("x\n" * 3000, may_delegate=False)).output_path
    new = (await store.bound("x\n" * 3000, may_delegate=False)).output_path
    assert old and new
    other = store.directory / "notes.txt"
    other.write_text("not ours")
    now = clock.now_ms()
    for path in (old, other):
        os.utime(path, (now / 1000, (now - RETENTION_MS) / 1000 - 1))
    assert await store.cleanup(now) == 1
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


async def test_cleanup_before_there_is_anything(store: OutputStore) -> None:
    assert await store.cleanup(clock.now_ms()) == 0


async def test_an_output_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bounded = await OutputStore(tmp_path / "file").bound("line\n" * 5_000, may_delegate=True)
    assert bounded.truncated and bounded.output_path is None and "could not be kept" in bounded.text


async def test_what_another_server_removes_meanwhile_stops_no_cleanup(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [(await store.bound("x\n" * 3000, may_delegate=False)).output_path for _ in range(3)]
    look = Path.lstat

    def lose_first(self: Path) -> os.stat_result:
        if self == paths[0]:
            self.unlink(missing_ok=True)
        return look(self)

    monkeypatch.setattr(Path, "lstat", lose_first)
    assert await store.cleanup(clock.now_ms() + 2 * RETENTION_MS) == 2
    assert list(store.directory.iterdir()) == []
