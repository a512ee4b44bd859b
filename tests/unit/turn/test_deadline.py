"""The deadline of a turn is found at the end of a conversation, however long that is."""

from collections.abc import Sequence
from typing import Any

import pytest
from session_parts import assistant, user

from app.schema.message import Message, MessageWithParts
from app.turn.ends import earliest

ASKED, ANSWERED = user("msg_1", deadline=5), assistant("msg_2", "msg_1", finish="stop")


class Looked(Sequence[Any]):
    """Counts the messages that are looked at."""

    def __init__(self, *infos: Message) -> None:
        self._messages = [MessageWithParts(info=info, parts=[]) for info in infos]
        self.looks = 0

    def __getitem__(self, position: Any) -> Any:
        self.looks += 1
        return self._messages[position]

    def __len__(self) -> int:
        return len(self._messages)


@pytest.mark.parametrize("turns", [2, 200])
def test_only_what_stands_behind_the_last_final_answer_is_looked_at(turns: int) -> None:
    history = Looked(*[ASKED, ANSWERED] * turns, user("msg_y", deadline=9), user("msg_z", deadline=7))
    assert earliest(history) == 7
    assert history.looks <= 7


@pytest.mark.parametrize(("finish", "deadline"), [("stop", None), ("tool-calls", 5)])
def test_prompts_with_a_final_answer_have_no_deadline_any_more(finish: str, deadline: int | None) -> None:
    assert earliest(Looked(ASKED, assistant("msg_2", "msg_1", finish=finish))) == deadline
