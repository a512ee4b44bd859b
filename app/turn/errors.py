"""Translates exceptions of a turn to errors that are stored with the message."""

from app.provider.base import ApiFailure, ContextOverflow, MissingKey, UnusableOption
from app.schema.errors import (
    APIError,
    ApiErrorData,
    ContextOverflowData,
    ContextOverflowError,
    MessageAbortedError,
    MessageData,
    MessageError,
    ProviderAuthData,
    ProviderAuthError,
    unknown,
)
from app.storage.engine import StorageError

NOT_STORED = "The server could not store this answer. Send a prompt to go on."


class TurnFailure(Exception):
    """The server ends the turn. The text is stored as the message's error, unchanged."""


def aborted() -> MessageAbortedError:
    """In OpenCode's own word: clients show an answer as stopped, not as failed, when its text is just that."""
    return MessageAbortedError(data=MessageData(message="Aborted"))


def deadline_passed() -> MessageAbortedError:
    """An abort, so that every client knows it."""
    return MessageAbortedError(data=MessageData(message="The deadline of the prompt passed before its answer was complete."))


def to_message_error(error: BaseException) -> MessageError:
    if isinstance(error, MissingKey):
        return ProviderAuthError(data=ProviderAuthData(provider_id=error.provider_id, message=error.message))
    if isinstance(error, ContextOverflow):
        return ContextOverflowError(data=ContextOverflowData(message=error.message, response_body=error.body))
    if isinstance(error, ApiFailure):
        return APIError(
            data=ApiErrorData(
                message=error.message,
                status_code=error.status,
                is_retryable=error.retryable,
                response_headers=error.headers,
                response_body=error.body,
                metadata=error.metadata,
            )
        )
    if isinstance(error, TurnFailure | UnusableOption):
        return unknown(str(error))
    if isinstance(error, StorageError):
        return unknown(NOT_STORED)
    return unknown(f"{type(error).__name__}: {error}")
