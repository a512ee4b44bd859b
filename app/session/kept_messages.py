"""Messages as values, kept from one read of a conversation to the next: a turn reads it before every step, and nearly all of it
is as it was."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part
from app.session import rows
from app.storage.repositories.message_rows import LiveHistory, StoredMessages

MOST_CHARACTERS = 2_000_000
"""Of the stored texts of all conversations that are kept."""


class _Kept(NamedTuple):
    """`text`: all that is stored of it."""

    text: str
    message: MessageWithParts


@dataclass(frozen=True, slots=True)
class _KeptConversation:
    messages: Mapping[str, _Kept]
    characters: int


class KeptMessages:
    """Those that are read are not to be changed, but for the newest and for answers that are not complete."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = most_characters
        self._sessions: OrderedDict[str, _KeptConversation] = OrderedDict()
        self._characters = 0

    def of(self, session_id: str, live: Mapping[str, Part]) -> dict[str, _Kept]:
        """By id, without those that have `live` parts."""
        kept = dict(self._sessions[session_id].messages) if session_id in self._sessions else {}
        for part in live.values():
            kept.pop(part.message_id, None)
        return kept

    def read(
        self, session_id: str, history: LiveHistory, kept: Mapping[str, _Kept], live: Mapping[str, Part]
    ) -> list[MessageWithParts]:
        """As `rows.read_messages` does, without what is damaged. `history` has the rows of what differs from `kept`, `live` are
        the streaming parts."""
        texts = history.texts
        known = {message_id: each for message_id, each in kept.items() if texts.get(message_id) == each.text}
        changed = rows.without_damage(session_id, _without(known, history.stored))
        read = {message.info.id: message for message in rows.read_messages(session_id, changed, live)}
        found = {
            message_id: known.get(message_id) or _Kept(text, read[message_id])
            for message_id, text in texts.items()
            if message_id in known or message_id in read
        }
        self._keep(session_id, found, read)
        return [each.message for each in found.values()]

    def _keep(self, session_id: str, found: Mapping[str, _Kept], read: Mapping[str, MessageWithParts]) -> None:
        """What is complete, but for the newest. `read`: what was not kept before."""
        self.forget(session_id)
        left_out = {message_id for message_id, message in read.items() if not _is_complete(message)} | set(list(found)[-1:])
        complete = {message_id: each for message_id, each in found.items() if message_id not in left_out}
        characters = sum(len(each.text) for each in complete.values())
        if not complete or characters > self._most:
            return
        self._sessions[session_id] = _KeptConversation(complete, characters)
        self._characters += characters
        while self._characters > self._most:
            self.forget(next(iter(self._sessions)))

    def forget(self, session_id: str) -> None:
        forgotten = self._sessions.pop(session_id, None)
        if forgotten is not None:
            self._characters -= forgotten.characters


def _without(known: Mapping[str, _Kept], stored: StoredMessages) -> StoredMessages:
    messages = [row for row in stored.messages if row.id not in known]
    return StoredMessages(messages, [row for row in stored.parts if row.message_id not in known])


def _is_complete(message: MessageWithParts) -> bool:
    return not isinstance(message.info, AssistantMessage) or message.info.time.completed is not None
