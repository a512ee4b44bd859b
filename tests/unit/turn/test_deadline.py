"""The deadline of a turn is found at the end of a conversation, however long that is."""

from collections.abc import Sequence
from typing import Any

import pytest
from session_parts import assistant, user

from app.schema.message import Message, MessageWithParts
from app.turn.ends import earliest


class Looked(Sequence[Any]):
    """Counts the messages that are looked at."""

    def __init__(self, infos: list[Message]) -> None:
        self._messages = [MessageWithParts(info=info, parts=[]) for info in infos]
        self.looks = 0

    def __getitem__(self, position: Any) -> Any:
        self.looks += 1
        return self._messages[position]

    def __len__(self) -> int:
        return len(self._messages)


def answered(turns: int) -> list[Message]:
    pairs = [(user(f"msg_{n}a"), assistant(f"msg_{n}b", f"msg_{n}a", finish="stop")) for n in range(turns)]
    return [info for pair in pairs for info in pair]


@pytest.mark.parametrize("turns", [2, 200])
def test_only_what_stands_behind_the_last_final_answer_is_looked_at(turns: int) -> None:
    history = Looked([*answered(turns), user("msg_y", deadline=9), user("msg_z", deadline=7)])
    assert earliest(history) == 7
    assert history.looks <= 7


def test_prompts_with_a_final_answer_have_no_deadline_any_more() -> None:
    asked: list[Message] = [user("msg_1", deadline=5), assistant("msg_2", "msg_1", finish="stop")]
    assert earliest(Looked(asked)) is None
    assert earliest(Looked([asked[0], assistant("msg_2", "msg_1", finish="tool-calls")])) == 5
