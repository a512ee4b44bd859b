"""What a prompt, a queue and a user's own shell line are taken as."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from app.schema.errors import BadRequest
from app.tools.base import ToolError, ToolPermission
from app.turn.intake.prompt_parts import data_text, line_range
from app.turn.intake.prompt_queue import PromptQueue
from app.turn.intake.session_actions import _ShellHost


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", (None, None)),
        ("start=2&end=3", (1, 2)),
        ("start=2", (1, None)),
        ("end=3", (None, None)),
        ("start=0&end=4", (0, 4)),
        ("start=5&end=5", (4, 1)),
        ("start=9&end=2", (8, 1)),
        ("start=x&end=3", (None, None)),
        ("start=2&end=x", (1, None)),
        ("start=-2", (None, None)),
        ("start=²", (None, None)),
        ("start=99999999999999999999&end=3", (None, None)),
        (f"start=2&end={'9' * 5000}", (1, None)),
    ],
)
def test_lines_from_one_become_what_to_skip_and_to_read(query: str, expected: tuple[int | None, int | None]) -> None:
    assert line_range(query) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"data:text/plain;base64,{base64.b64encode('grüße?>'.encode()).decode()}", "grüße?>"),
        ("data:text/plain;base64,YQ", "a"),
        (f"data:text/plain;base64,{base64.urlsafe_b64encode('ÿ?>'.encode()).decode()}", "ÿ?>"),
        ("data:text/plain,a%20b%C3%BC", "a bü"),
        ("data:text/plain;charset=utf-8,plain", "plain"),
        ("data:,", ""),
        ("data:text/plain;base64,/w==", "\ufffd"),
    ],
)
def test_a_data_url_says_what_was_put_into_it(url: str, expected: str) -> None:
    assert data_text(url) == expected


def test_what_is_not_base64_refuses_the_prompt() -> None:
    with pytest.raises(BadRequest):
        data_text("data:text/plain;base64,a")


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
