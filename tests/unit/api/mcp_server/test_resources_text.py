"""Pieces of long texts."""

from collections.abc import AsyncGenerator

import pytest

from app.api.mcp_server.resources import Window, diff_text, window

TEXT = "añb€c𝄞d" * 7


async def in_pieces(size: int) -> AsyncGenerator[bytes, None]:
    content = TEXT.encode()
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.mark.parametrize("piece", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("limit", [1, 2, 20, len(TEXT), 1000])
async def test_a_window_is_the_same_however_the_text_comes(piece: int, limit: int) -> None:
    last = await window(in_pieces(piece), limit)
    assert last == Window(TEXT[-limit:], max(len(TEXT) - limit, 0), len(TEXT))
    for offset in (0, 1, 13, len(TEXT), 5000):
        assert await window(in_pieces(piece), limit, offset) == Window(TEXT[offset : offset + limit], offset, len(TEXT))


def test_a_file_without_a_patch_is_named() -> None:
    assert diff_text([{"file": "a.png"}, {"file": "b", "patch": "-x\n+y"}]) == "a.png: changed, without a diff\n-x\n+y"
    assert diff_text([]) == "No files were changed."
