"""A queue that another server empties, and what a user's own shell line may reach."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.tools.base import ToolError, ToolPermission
from app.turn.intake.prompt_queue import PromptQueue
from app.turn.intake.session_actions import _ShellHost


async def test_a_prompt_that_leaves_the_queue_on_another_server_is_waited_for() -> None:
    """That server begins the last one just before the queue is read."""
    held = [True, False]

    async def returns(*_: object, value: Any = None) -> Any:
        return value

    async def is_held_elsewhere(_session_id: str) -> bool:
        return held.pop(0)

    leases = SimpleNamespace(free_elsewhere=returns, is_held_elsewhere=is_held_elsewhere)
    live = SimpleNamespace(idle=returns)
    other = SimpleNamespace(
        leases=leases, get=lambda _: live, is_running=lambda _: False, session_json=returns, query=lambda *_: returns(value=[])
    )
    await PromptQueue(*[other] * 5, most=1).all_answered("ses_1")
    assert held == [], "it looked again when the lease was free"


async def test_what_is_not_the_users_stays_closed() -> None:
    instance = SimpleNamespace(hides=lambda path: not path.startswith("/srv/mine"))
    host = _ShellHost(instance, None, None)
    await host.require_permission(ToolPermission("bash", ["cat /etc/hosts"], []))
    await host.require_permission(ToolPermission("external_directory", ["/srv/mine/file"], []))
    with pytest.raises(ToolError, match="outside the directories"):
        await host.require_permission(ToolPermission("external_directory", ["/srv/mine/file", "/srv/others/file"], []))
