from pathlib import Path

import pytest
from own_announcements import OwnAnnouncements

from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.providers.registry import Providers
from app.tools.mcp.servers import McpServers, McpSettings
from app.tools.mcp.values import CredentialStore
from app.util.tasks import TaskSet
from app.workspace.instance import Resources
from app.workspace.lsp.servers import LanguageServers, LspSettings


class CountedProviders(Providers):
    def __init__(self) -> None:
        super().__init__({})
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made(tmp_path: Path) -> tuple[Resources, CountedProviders, TaskSet]:
    providers, closing = CountedProviders(), TaskSet()
    settings = McpSettings({}, OFF, CredentialStore(tmp_path), OwnAnnouncements())
    workspace = SandboxWorkspace(tmp_path, tmp_path)
    servers = LanguageServers(workspace, LspSettings({}, OFF, OwnAnnouncements().announce), config=False)
    return Resources(providers, McpServers(workspace, settings), servers, closing), providers, closing


@pytest.mark.parametrize("is_shared", [True, False])
async def test_resources_are_closed_when_their_last_user_has_left(
    made: tuple[Resources, CountedProviders, TaskSet], is_shared: bool
) -> None:
    """Those that are used again before they were closed stay open."""
    resources, providers, closing = made
    resources.acquire()
    if not is_shared:
        resources.release()
    with resources.in_use():
        if is_shared:
            resources.release()
        await closing.wait()
        assert providers.closed == 0
    await closing.wait()
    assert providers.closed == 1
