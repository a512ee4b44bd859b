"""The headers of a request, decoded once: a dozen of them are looked for on its way."""

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

_HEADERS = "opensession.headers"
"""Where in a request's scope they are."""


class RequestHeaders(Headers):
    """Of a header that was sent twice the first one counts, as with any Headers."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._first = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self._list)}

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._first

    def get(self, key: str, default: Any = None) -> Any:
        return self._first.get(key.lower(), default)


def headers_of(scope: Scope) -> RequestHeaders:
    found: RequestHeaders | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = RequestHeaders(scope)
    return found
