"""Fixtures of the tools' tests: a project directory, a host that records, a context."""

from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost, MakeContext

from app.project.sandbox.scope import SandboxWorkspace
from app.schema.model import Agent
from app.tools.base import ToolContext


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project directory, symlinks resolved; `project.parent` is outside of it."""
    directory = tmp_path.resolve() / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def make_ctx(host: FakeHost, project: Path) -> MakeContext:
    """`make_ctx(session_id="ses_2", directory=…)`: a context with these fields changed."""

    def make(**changes: Any) -> ToolContext:
        fields: dict[str, Any] = {
            "session_id": "ses_test",
            "message_id": "msg_test",
            "call_id": "call_test",
            "agent": Agent(name="build", mode="primary", permission=[]),
            "host": host,
        }
        directory, worktree = changes.pop("directory", project), changes.pop("worktree", Path("/"))
        return ToolContext(**(fields | {"sandbox_workspace": SandboxWorkspace(directory, worktree)} | changes))

    return make


@pytest.fixture
def ctx(make_ctx: MakeContext) -> ToolContext:
    return make_ctx()
