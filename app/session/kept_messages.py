"""Messages as values, kept from one read of a conversation to the next: a turn reads it before every step, and nearly all of it
is as it was."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part
from app.session import rows
from app.storage.queries import StoredMessages

MOST_CHARACTERS = 2_000_000
"""Of the stored texts of all conversations that are kept."""

_StoredTexts = tuple[str, ...]
"""All that is stored of a message: equal sources are equal messages."""


@dataclass(frozen=True, slots=True)
class _KeptConversation:
    messages: Mapping[str, tuple[_StoredTexts, MessageWithParts]]
    characters: int


class KeptMessages:
    """Those that are read are not to be changed, but for the newest and for answers that are not complete."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = most_characters
        self._sessions: OrderedDict[str, _KeptConversation] = OrderedDict()
        self._characters = 0

    def read(self, session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[MessageWithParts]:
        """As `rows.read_messages` does. `stored` is the whole conversation, `live` its streaming parts."""
        sources = _sources(stored)
        before = self._sessions[session_id].messages if session_id in self._sessions else {}
        known = {key: message for key, (source, message) in before.items() if sources.get(key) == source}
        for part in live.values():
            known.pop(part.message_id, None)
        changed = StoredMessages(
            [row for row in stored.messages if row.id not in known], [row for row in stored.parts if row.message_id not in known]
        )
        known |= {message.info.id: message for message in rows.read_messages(session_id, changed, live)}
        messages = [known[row.id] for row in stored.messages if row.id in known]
        self._keep(session_id, sources, messages)
        return messages

    def _keep(self, session_id: str, sources: Mapping[str, _StoredTexts], messages: list[MessageWithParts]) -> None:
        self._forget(session_id)
        complete = [message for message in messages[:-1] if _is_complete(message)]
        kept = {message.info.id: (sources[message.info.id], message) for message in complete}
        characters = sum(len(text) for source, _ in kept.values() for text in source)
        if not kept or characters > self._most:
            return
        self._sessions[session_id] = _KeptConversation(kept, characters)
        self._characters += characters
        while self._characters > self._most:
            self._forget(next(iter(self._sessions)))

    def _forget(self, session_id: str) -> None:
        forgotten = self._sessions.pop(session_id, None)
        if forgotten is not None:
            self._characters -= forgotten.characters


def _sources(stored: StoredMessages) -> dict[str, _StoredTexts]:
    texts: dict[str, list[str]] = {row.id: [row.parent_id or "", row.body] for row in stored.messages}
    row: Any
    for row in stored.parts:
        if row.message_id in texts:
            texts[row.message_id] += (row.id, row.body)
    return {message_id: tuple(of_message) for message_id, of_message in texts.items()}


def _is_complete(message: MessageWithParts) -> bool:
    return not isinstance(message.info, AssistantMessage) or message.info.time.completed is not None
