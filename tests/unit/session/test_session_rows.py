"""Between rows and values: nothing is lost, whatever stands in an id or a text."""

from collections import namedtuple
from typing import Any

import pytest
from session_parts import assistant, text_part, user

from app.schema.message import Message, UserSummary
from app.schema.part import PART, Part
from app.schema.session import FileDiff
from app.session import rows
from app.storage.repositories.message_rows import StoredMessages

HOSTILE = [
    'msg_"quote"',
    "msg_back\\slash",
    "msg_\n\t\x01",
    "msg_é\u2028\U0001f600",
    'msg_","role":"assistant',
    "msg_{}",
    "msg_'; --",
]


MessageRow = namedtuple("MessageRow", ["seq", "id", "role", "parent_id", "body"])
PartRow = namedtuple("PartRow", ["message_id", "id", "type", "body"])


def stored(messages: list[Message], parts: list[Part]) -> StoredMessages:
    of_messages, of_parts = map(rows.message_row, messages), map(rows.part_row, parts)
    return StoredMessages(
        [MessageRow(seq, row["id"], row["role"], row["parent_id"], row["body"]) for seq, row in enumerate(of_messages)],
        [PartRow(row["message_id"], row["id"], row["type"], row["body"]) for row in of_parts],
    )


def as_json(found: StoredMessages, live: dict[str, Part] | None = None) -> list[Any]:
    return rows.message_values("ses_1", found, live or {})


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_ids_are_shown_as_they_are(hostile: str) -> None:
    part = text_part(hostile.replace("msg", "prt"), hostile, message_id=hostile)
    [message] = as_json(stored([assistant(hostile, parent_id=hostile)], [part]))
    assert message["info"] == assistant(hostile, parent_id=hostile).wire()
    assert message["parts"] == [part.wire()]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_ids_are_read_back_as_they_are(hostile: str) -> None:
    info, part = assistant(hostile, parent_id=hostile), text_part("prt_1", "x", message_id=hostile)
    [message] = rows.read_messages("ses_1", stored([info], [part]), {})
    assert (message.info, message.parts) == (info, [part])


def test_ids_inside_a_body_stay() -> None:
    attached = {"id": "prt_2", "sessionID": "ses_1", "messageID": "msg_1", "type": "file", "mime": "image/png", "url": "data:,"}
    state = {"status": "completed", "input": {"id": 1}, "output": "", "title": "", "metadata": {"sessionID": "ses_child"}}
    state |= {"time": {"start": 1, "end": 2}, "attachments": [attached]}
    sent = {
        "id": "prt_1",
        "sessionID": "ses_1",
        "messageID": "msg_1",
        "type": "tool",
        "callID": "c",
        "tool": "task",
        "state": state,
    }
    [message] = as_json(stored([user("msg_1")], [PART.validate_python(sent)]))
    assert message["parts"] == [sent]


def test_texts_of_every_kind_survive() -> None:
    text = 'quotes " \\ \u2028 \x00 \U0001f600 ' + "x" * 100_000
    diff = FileDiff(file=text, before="", after="", additions=1, deletions=0)
    info = user("msg_1", summary=UserSummary(diffs=[diff]), system=text)
    [message] = rows.read_messages("ses_1", stored([info], [text_part("prt_1", text)]), {})
    assert message.info == info and message.parts == [text_part("prt_1", text)]
