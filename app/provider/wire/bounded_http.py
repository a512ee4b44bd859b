"""A hook of the SDKs' HTTP client that bounds what comes of an answer besides its events."""

from collections.abc import AsyncIterator

import httpx2

from app.util.bounded_answer import MAX_ERROR_BYTES, AnswerPassedLimit, require_identity


async def bound(response: httpx2.Response) -> None:
    """Of an answer that is no success as much is read as is kept. Nothing is unpacked: raises AnswerPassedLimit for a success
    that is compressed."""
    try:
        require_identity(response.headers)
        most = MAX_ERROR_BYTES
    except AnswerPassedLimit:
        if response.is_success:
            raise
        del response.headers["content-encoding"]
        most = 0
    if not response.is_success:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Beginning(response.stream, most)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        if not left:
            return
        async for chunk in self._stream:
            yield chunk[:left]
            left = max(left - len(chunk), 0)
            if not left:
                return

    async def aclose(self) -> None:
        await self._stream.aclose()
