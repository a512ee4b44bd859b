"""Hooks of an HTTP client that bound what each answer has, those of a sign-in too."""

from collections.abc import AsyncIterable, AsyncIterator, Callable

import httpx2

from app.util.bounds import IDENTITY, AnswerPassedLimit, EventBytes, body_of, require_few_values, require_identity


async def ask_uncompressed(request: httpx2.Request) -> None:
    request.headers.update(IDENTITY)


async def bound(response: httpx2.Response) -> None:
    """Reading an answer that is compressed or too large raises httpx2.StreamError: to the SDK one of that request alone."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _BoundedStream(response, _events if is_stream else _document)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, read: Callable[[AsyncIterable[bytes]], AsyncIterator[bytes]]) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._headers = response.headers
        self._read = read

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            require_identity(self._headers)
            async for chunk in self._read(self._stream):
                yield chunk
        except AnswerPassedLimit as passed:
            raise httpx2.StreamError(str(passed)) from passed

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    count = EventBytes()
    async for chunk in chunks:
        count.add(chunk)
        yield chunk


async def _document(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    body = await body_of(chunks)
    require_few_values(body)
    yield body
