"""Messages as values, kept from one read of a conversation to the next: a turn reads it before every step, and nearly all of it
is as it was."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part
from app.session import rows
from app.storage.queries import StoredMessages
from app.util.dataclass import dataclass

MOST_CHARACTERS = 2_000_000
"""Of the stored texts of all conversations that are kept."""

_StoredTexts = tuple[str, ...]
"""All that is stored of a message: equal texts are equal messages."""


class _Kept(NamedTuple):
    texts: _StoredTexts
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

    def read(self, session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[MessageWithParts]:
        """As `rows.read_messages` does, without what is damaged. `stored` is the whole conversation as queries give it, `live`
        its streaming parts."""
        texts = _stored_texts(stored)
        before = self._sessions[session_id].messages if session_id in self._sessions else {}
        known = {message_id: kept for message_id, kept in before.items() if texts.get(message_id) == kept.texts}
        for part in live.values():
            known.pop(part.message_id, None)
        changed = rows.without_damage(session_id, _without(known, texts, stored))
        known |= {read.info.id: _Kept(texts[read.info.id], read) for read in rows.read_messages(session_id, changed, live)}
        found = [known[message_id] for message_id in texts if message_id in known]
        self._keep(session_id, found[:-1])
        return [kept.message for kept in found]

    def count(self, session_id: str) -> int:
        """How many messages of a conversation are kept."""
        return len(self._sessions[session_id].messages) if session_id in self._sessions else 0

    def _keep(self, session_id: str, found: list[_Kept]) -> None:
        self.forget(session_id)
        complete = {kept.message.info.id: kept for kept in found if _is_complete(kept.message)}
        characters = sum(sum(map(len, kept.texts)) for kept in complete.values())
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


def _stored_texts(stored: StoredMessages) -> dict[str, _StoredTexts]:
    """Rows are unpacked: to ask them for one column by name takes as long."""
    texts: dict[str, list[str]] = {}
    for _, message_id, _, parent_id, body, *_ in stored.messages:
        texts[message_id] = [parent_id or "", body]
    for message_id, part_id, body in stored.parts:
        if message_id in texts:
            texts[message_id] += (part_id, body)
    return {message_id: tuple(of_message) for message_id, of_message in texts.items()}


def _without(known: Mapping[str, _Kept], ids: Iterable[str], stored: StoredMessages) -> StoredMessages:
    """`ids`: of the messages, in their order."""
    messages = [row for message_id, row in zip(ids, stored.messages, strict=True) if message_id not in known]
    return StoredMessages(messages, [row for row in stored.parts if row[0] not in known])


def _is_complete(message: MessageWithParts) -> bool:
    return not isinstance(message.info, AssistantMessage) or message.info.time.completed is not None
