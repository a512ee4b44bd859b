import asyncio
from pathlib import Path

import pytest

from app.tool.text_file import FileLocks


async def test_one_at_a_time_in_the_order_of_asking(tmp_path: Path) -> None:
    locks = FileLocks()
    seen: list[str] = []

    async def work(name: str) -> None:
        async with locks.hold(tmp_path / "a"):
            seen.append(f"{name} in")
            await asyncio.sleep(0)
            seen.append(f"{name} out")

    await asyncio.gather(work("1"), work("2"), work("3"))
    assert seen == ["1 in", "1 out", "2 in", "2 out", "3 in", "3 out"]


async def test_different_files_do_not_wait_for_each_other(tmp_path: Path) -> None:
    locks = FileLocks()
    async with locks.hold(tmp_path / "a"), asyncio.timeout(60), locks.hold(tmp_path / "b"):
        pass


async def test_a_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    locks = FileLocks()
    async with locks.hold(tmp_path / "a"):
        waiting = asyncio.create_task(_touch(locks, tmp_path / "link"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 60)


async def test_failure_and_cancellation_release_the_lock(tmp_path: Path) -> None:
    locks = FileLocks()
    with pytest.raises(ValueError, match="boom"):
        async with locks.hold(tmp_path / "a"):
            waiting = asyncio.create_task(_touch(locks, tmp_path / "a"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            raise ValueError("boom")
    async with asyncio.timeout(60), locks.hold(tmp_path / "a"):
        pass


async def test_two_that_want_the_same_two_files_never_wait_for_each_other(tmp_path: Path) -> None:
    locks = FileLocks()
    one, two = tmp_path / "1", tmp_path / "2"

    async def both(*paths: Path) -> None:
        async with locks.hold_all(paths):
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*[both(one, two) for _ in range(20)], *[both(two, one) for _ in range(20)])


async def _touch(locks: FileLocks, path: Path) -> None:
    async with locks.hold(path):
        pass
