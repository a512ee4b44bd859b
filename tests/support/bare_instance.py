"""An instance of a directory that nothing is configured in."""

from pathlib import Path

from own_announcements import announcing_to

from app.project.config.flags import Flags
from app.project.location import Location
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.providers.registry import Providers
from app.schema.config import Config
from app.tools.mcp.servers import McpServers, McpSettings
from app.tools.mcp.values import CredentialStore
from app.util.tasks import TaskSet
from app.workspace.formatters import Formatters
from app.workspace.instance import Instance, InstanceExtensions, InstanceModels, Resources
from app.workspace.lsp.servers import LanguageServers, LspSettings


def bare_instance(directory: str) -> Instance:
    mcp = McpServers(
        SandboxWorkspace(Path(directory), Path(directory)),
        McpSettings({}, OFF, CredentialStore(Path(directory)), announcing_to()),
    )
    states = announcing_to()
    language_servers = LanguageServers(
        SandboxWorkspace(Path(directory), Path(directory)), LspSettings({}, OFF, states.announce), config=False
    )
    providers = Providers({})
    return Instance(
        location=Location(directory, "global", "/", is_git=False),
        flags=Flags(),
        config=Config(),
        agents={},
        models=InstanceModels({}, providers),
        extensions=InstanceExtensions(
            mcp, language_servers, Formatters(SandboxWorkspace(Path(directory), Path(directory)), OFF, {}, config=False)
        ),
        resources=Resources(providers, mcp, language_servers, TaskSet()),
        sandbox_workspace=SandboxWorkspace(Path(directory), Path("/")),
    )
