"""A client of Opensession servers: `Opensession`, and `AsyncOpensession` with the same methods to be awaited.

Both send `operations` (generated, as the `models` are); what they share is pure. `_sync` is generated from `_async`.
"""

from opensession_client import models, operations
from opensession_client._async.client import AsyncOpensession
from opensession_client._async.event_stream import AsyncEventStream
from opensession_client._sync.client import Opensession
from opensession_client._sync.event_stream import EventStream
from opensession_client.answer import Answer
from opensession_client.errors import ApiError, LoginRequired, NotFound, OpensessionError, PromptAborted, PromptFailed
from opensession_client.events import StreamedEvent, UnknownEvent, session_id_of
from opensession_client.files import attached_file, server_file

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "ApiError",
    "AsyncEventStream",
    "AsyncOpensession",
    "EventStream",
    "LoginRequired",
    "NotFound",
    "Opensession",
    "OpensessionError",
    "PromptAborted",
    "PromptFailed",
    "StreamedEvent",
    "UnknownEvent",
    "attached_file",
    "models",
    "operations",
    "server_file",
    "session_id_of",
]
