"""What the commands share: settings from the environment, and errors as one sentence without a traceback."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.settings import Settings
from app.telemetry.log_lines import writes_json

log = logging.getLogger(__name__)


class OutputFormat(StrEnum):
    DEFAULT = "default"
    JSON = "json"


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
    from app.sandbox.machine import SandboxUnusable

    try:
        yield
    except SandboxUnusable as error:
        fail(str(error))


def settings(**options: Any) -> Settings:
    """Of the environment, and of a command's options that were given. Prints an invalid value as one sentence without a
    traceback."""
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as invalid:
        fail("\n".join(map(_sentence, invalid.errors())))


def _sentence(error: ErrorDetails) -> str:
    said = error["msg"].removeprefix("Value error, ")
    return f"OPENSESSION_{str(error['loc'][0]).upper()}: {said}" if error["loc"] else said


@contextmanager
def failures_as_log_lines() -> Iterator[None]:
    """Where the log is JSON, what ends a server stands there and not in a traceback of its own."""
    try:
        yield
    except typer.Exit:
        raise
    except Exception:
        if not writes_json():
            raise
        log.critical("the server ended", exc_info=True)
        raise typer.Exit(1) from None


def fail(message: str) -> NoReturn:
    """A server whose log is JSON says it there."""
    if writes_json():
        log.error("%s", message)
    else:
        typer.echo(message, err=True)
    raise typer.Exit(1)
