"""When a session's queue is answered."""

from typing import Any, cast

from app.turn.intake.prompt_queue import PromptQueue


class BegunElsewhere:
    """A store, live sessions and leases in one: another server begins the last queued prompt just before the queue is read."""

    def __init__(self) -> None:
        self.held = [True, False]
        self.leases = self

    def get(self, session_id: str) -> "BegunElsewhere":
        return self

    async def session_json(self, session_id: str) -> bytes:
        return b"{}"

    async def query(self, read: Any, session_id: str) -> list[Any]:
        return []

    async def idle(self) -> None: ...

    def is_running(self, session_id: str) -> bool:
        return False

    async def free_elsewhere(self, session_id: str) -> None: ...

    async def is_held_elsewhere(self, session_id: str) -> bool:
        return self.held.pop(0)


async def test_a_prompt_that_leaves_the_queue_on_another_server_is_waited_for() -> None:
    other = cast(Any, BegunElsewhere())
    queue = PromptQueue(other, other, other, other, other, most=1)
    await queue.all_answered("ses_1")
    assert other.held == [], "it looked again when the lease was free"
