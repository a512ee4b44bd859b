"""An instance of a directory that nothing is configured in."""

from pathlib import Path

from app.config.flags import Flags
from app.mcp.credentials import CredentialStore
from app.mcp.servers import McpServers, McpSettings
from app.project.place import Place
from app.provider.models.catalogue import KnownCatalogue
from app.provider.registry import Providers
from app.schema.config import Config
from app.util.tasks import TaskSet
from app.workspace.instance import Instance
from app.workspace.resources import Resources


def bare_instance(directory: str) -> Instance:
    mcp = McpServers(directory, McpSettings({}, CredentialStore(Path(directory)), lambda _directory, _event: None))
    providers = Providers({})
    return Instance(
        place=Place(directory, "global", "/", is_git=False),
        flags=Flags(),
        config=Config(),
        agents={},
        connected={},
        known=KnownCatalogue(),
        providers=providers,
        resources=Resources(providers, mcp, TaskSet()),
        commands=(),
        skills=(),
        mcp=mcp,
        trees=None,
    )
