from pathlib import Path

from own_announcements import announcing_to

from app.lsp.servers import LanguageServers, LspSettings
from app.mcp.credentials import CredentialStore
from app.mcp.servers import McpServers, McpSettings
from app.provider.registry import Providers
from app.sandbox.sandbox import OFF
from app.sandbox.scope import SandboxWorkspace
from app.util.tasks import TaskSet
from app.workspace.instance import Resources


class CountedProviders(Providers):
    def __init__(self) -> None:
        super().__init__({})
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def no_servers(directory: Path) -> LanguageServers:
    return LanguageServers(SandboxWorkspace(directory, directory), LspSettings({}, OFF, announcing_to().announce), config=False)


async def test_resources_are_closed_when_their_last_user_has_left(tmp_path: Path) -> None:
    providers, closing = CountedProviders(), TaskSet()
    settings = McpSettings({}, OFF, CredentialStore(tmp_path), announcing_to())
    mcp = McpServers(SandboxWorkspace(tmp_path, tmp_path), settings)
    resources = Resources(providers, mcp, no_servers(tmp_path), closing)
    resources.acquire()
    with resources.in_use():
        resources.release()
        await closing.wait()
        assert providers.closed == 0
    await closing.wait()
    assert providers.closed == 1


async def test_resources_that_are_used_again_before_they_were_closed_stay_open(tmp_path: Path) -> None:
    providers, closing = CountedProviders(), TaskSet()
    settings = McpSettings({}, OFF, CredentialStore(tmp_path), announcing_to())
    mcp = McpServers(SandboxWorkspace(tmp_path, tmp_path), settings)
    resources = Resources(providers, mcp, no_servers(tmp_path), closing)
    resources.acquire()
    resources.release()
    with resources.in_use():
        await closing.wait()
        assert providers.closed == 0
    await closing.wait()
    assert providers.closed == 1
