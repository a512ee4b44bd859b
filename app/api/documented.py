"""The error answers of the first API, for its description."""

from typing import Any, Literal

from app.schema.base import Wire
from app.schema.errors import RequestPart


class BadRequestData(Wire):
    """`kind`: the part of the request that is wrong."""

    message: str
    kind: RequestPart | None = None
    received: Any = None


class BadRequestError(Wire):
    """OpenCode 1.1's clients read `errors` or `error`, both are the same list; those of 1.18 read `data`."""

    name: Literal["BadRequest"]
    data: BadRequestData
    errors: list[dict[str, Any]]
    success: Literal[False]


class ErrorData(Wire):
    message: str


class NamedError(Wire):
    name: str
    data: ErrorData


class NotFoundError(Wire):
    name: Literal["NotFoundError"]
    data: ErrorData


Responses = dict[int | str, dict[str, Any]]

_ERRORS: dict[int, tuple[str, type[Wire]]] = {
    400: ("Bad request", BadRequestError),
    403: ("Not allowed", NamedError),
    404: ("Not found", NotFoundError),
    409: ("Busy, or used for something else", NamedError),
    413: ("Too large", NamedError),
    426: ("Upgrade required", NamedError),
    429: ("Too many", NamedError),
    507: ("The project's sessions take all the room that they may", NamedError),
}


def documented(*statuses: int) -> Responses:
    return {status: answer(*_ERRORS[status]) for status in statuses}


described: set[type[Wire]] = set()
"""Models of answers that stand in the description by their names."""


def answer(description: str, *models: type[Wire]) -> dict[str, Any]:
    """One of the models, by its name: FastAPI would make a validator of each for each route, in half a second of a start."""
    described.update(models)
    named = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    schema = named[0] if len(named) == 1 else {"anyOf": named}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
