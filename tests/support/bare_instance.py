"""An instance of a directory that nothing is configured in."""

from pathlib import Path

from own_announcements import announcing_to

from app.config.flags import Flags
from app.formatter.formatters import Formatters
from app.lsp.servers import LanguageServers, LspSettings
from app.mcp.servers import McpServers, McpSettings
from app.mcp.values import CredentialStore
from app.project.location import Location
from app.provider.registry import Providers
from app.sandbox.sandbox import OFF
from app.sandbox.scope import SandboxWorkspace
from app.schema.config import Config
from app.util.tasks import TaskSet
from app.workspace.instance import Instance, InstanceExtensions, InstanceModels, Resources


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
