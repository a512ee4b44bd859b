"""What the commands share: settings from the environment, and errors as one sentence without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer
from pydantic import ValidationError

from app.settings import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


@contextmanager
def database_must_do() -> Iterator[None]:
    """Prints a database error as one sentence without a traceback."""
    from app.storage.engine import DatabaseUnusable, StorageError

    try:
        yield
    except DatabaseUnusable as error:
        fail(str(error))
    except StorageError as error:
        fail(f"The database cannot be used: {getattr(error, 'orig', None) or error}")


@contextmanager
def sandbox_must_do() -> Iterator[None]:
    """Prints why a required sandbox does not work as one sentence without a traceback."""
    from app.sandbox.trial import SandboxUnusable

    try:
        yield
    except SandboxUnusable as error:
        fail(str(error))


def settings() -> Settings:
    """Prints an invalid value as one sentence without a traceback."""
    try:
        return Settings()
    except ValidationError as invalid:
        fail("\n".join(map(_sentence, invalid.errors())))


def _sentence(error: "ErrorDetails") -> str:
    said = error["msg"].removeprefix("Value error, ")
    return f"OPENSESSION_{str(error['loc'][0]).upper()}: {said}" if error["loc"] else said


def fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)
