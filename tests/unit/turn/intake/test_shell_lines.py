"""A user's own shell line needs no permission, and opens nothing that is another user's."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.tools.base import ToolError, ToolPermission
from app.turn.intake.session_actions import _ShellHost


async def test_what_is_not_the_users_stays_closed() -> None:
    instance = SimpleNamespace(hides=lambda path: not path.startswith("/srv/mine"))
    host = _ShellHost(*cast(Any, (instance, None, None)))
    await host.require_permission(ToolPermission("bash", ["cat /etc/hosts"], []))
    await host.require_permission(ToolPermission("external_directory", ["/srv/mine/file"], []))
    with pytest.raises(ToolError, match="outside the directories"):
        await host.require_permission(ToolPermission("external_directory", ["/srv/mine/file", "/srv/others/file"], []))
