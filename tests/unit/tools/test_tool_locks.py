import asyncio
from pathlib import Path

from app.tools.text_file import FileLocks


async def test_a_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    locks = FileLocks()
    async with locks.hold(tmp_path / "a"):
        waiting = asyncio.create_task(_touch(locks, tmp_path / "link"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 60)


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
