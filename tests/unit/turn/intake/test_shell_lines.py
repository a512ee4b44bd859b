"""A user's own shell line needs no permission, and opens nothing that is another user's."""

from dataclasses import replace
from pathlib import Path

import pytest
from bare_instance import bare_instance

from app.tools.base import ToolError, ToolPermission
from app.turn.intake.session_actions import _ShellHost


async def test_what_is_not_the_users_stays_closed(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine")
    instance = replace(bare_instance(str(tmp_path)), may_read=lambda path: path.startswith(mine))
    host = _ShellHost(instance, None, None)  # type: ignore[arg-type]
    await host.require_permission(ToolPermission("bash", ["cat /etc/hosts"], []))
    await host.require_permission(ToolPermission("external_directory", [f"{mine}/file"], []))
    with pytest.raises(ToolError, match="outside the directories"):
        await host.require_permission(ToolPermission("external_directory", [f"{mine}/file", "/srv/others/file"], []))
