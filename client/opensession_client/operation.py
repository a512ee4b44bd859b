"""A request of the API and what its answer is read as. Pure: the sync and the async client send it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from opensession_client.errors import ApiError, api_error

T = TypeVar("T")


def segment(value: str) -> str:
    """One part of a path: a name may contain `/`."""
    return quote(value, safe="")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """`answer`: the type `T`. `query`: without what is None. `body` is sent as JSON, `content` as it is."""

    method: str
    path: str
    answer: Any
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: bytes | None = None

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        query = {name: value for name, value in self.query.items() if value is not None}
        if self.body is None:
            return http.build_request(self.method, self.path, params=query, content=self.content)
        body = to_json(self.body, by_alias=True, exclude_none=True)
        headers = {"content-type": "application/json"}
        return http.build_request(self.method, self.path, params=query, content=body, headers=headers)

    def read(self, response: httpx.Response) -> T:
        """Raises ApiError, also for an answer that had begun when it failed: it has the status 200 and an error as its body."""
        if response.is_error:
            raise api_error(response.status_code, response.content)
        if self.answer is None:
            return cast(T, None)
        if self.answer is bytes:
            return cast(T, response.content)
        try:
            return cast(T, _adapter(self.answer).validate_json(response.content))
        except ValidationError:
            if failed := _late_error(response):
                raise failed from None
            raise


def _late_error(response: httpx.Response) -> ApiError | None:
    body = from_json(response.content)
    return api_error(500, response.content) if isinstance(body, dict) and body.keys() == {"name", "data"} else None


@cache
def _adapter(answer: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer)
