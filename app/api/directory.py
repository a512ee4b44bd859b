"""A directory's paths, project, agents, commands, skills, plugins and tools; its configuration, providers and their keys. Secrets
go in and never come out."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path
from fastapi.responses import Response
from pydantic_core import to_json

from app.api.deps import AppServices, CurrentInstance, CurrentWorkspace, Directory, Here, Who, json_bytes, location_of
from app.api.errors import documented
from app.api.json_route import router
from app.api.roles import ADMIN_READS, MANAGES, READS, WRITES, AdminsOnly
from app.project.config import patch
from app.providers.selection import ConnectedProviders, ProviderList, auth_methods, config_providers, provider_list
from app.schema.base import Wire
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.schema.model import Agent, ApiAuth, Auth, Command, ProviderAuthMethod, Skill, WellKnownAuth
from app.schema.part import ModelRef
from app.schema.project import Project, ProjectCommands, ProjectDirectory, ProjectIcon
from app.server import Server
from app.tools.plugins.loading import ExtensionStatus
from app.users.principal import Principal
from app.util import environment
from app.util.project_files import resolved
from app.util.secrets import masked
from app.workspace.commands import all_commands
from app.workspace.vcs.worktrees import init_repository
from app.workspace.workspace import patch_global_config, read_global_config

project = router("/project", tags=["project"])
routes = router("", 400, 403)

_PLACE = documented(400, 403)
ProjectIdPath = Annotated[str, Path(alias="projectID")]


class Paths(Wire):
    home: str
    state: str
    config: str
    worktree: str
    directory: str


class ToolListItem(Wire):
    id: str
    description: str
    parameters: Any


class ProjectUpdate(Wire):
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


@routes.get("/path", tags=["path"], operation_id="path.get", dependencies=READS)
async def path(here: Here) -> Paths:
    return Paths(
        home=str(environment.home()),
        state=str(environment.state_home() / "opensession"),
        config=str(environment.opencode_config_dir()),
        worktree=here.worktree,
        directory=here.directory,
    )


@project.get("", operation_id="project.list", response_model=list[Project], dependencies=READS)
async def projects(app: AppServices, who: Who) -> Response:
    if who.may_see_all:
        return json_bytes(await app.projects.all_json())
    return json_bytes(await app.projects.visible_json(lambda path: app.workspaces.admits(who, path)))


@project.get("/current", operation_id="project.current", responses=_PLACE, dependencies=READS)
async def current_project(app: AppServices, who: Who, here: Here) -> Project:
    found = await app.projects.get(here.project_id)
    if who.may_see_all:
        return found
    if not app.workspaces.admits(who, found.worktree):
        found.worktree = here.worktree
    return found.with_sandboxes_in(lambda path: app.workspaces.admits(who, path))


@project.get("/{projectID}/directories", operation_id="project.directories", responses=documented(400), dependencies=READS)
async def project_directories(app: AppServices, who: Who, project_id: ProjectIdPath) -> list[ProjectDirectory]:
    """The known checkouts of a project; none of an unknown project."""
    found = await app.projects.find(project_id)
    known = found.directories() if found else []
    real = zip(known, map(resolved, known), strict=True)
    return [ProjectDirectory(directory=path) for path, without_links in real if app.workspaces.admits(who, without_links)]


@project.post("/git/init", responses=documented(400, 403, 409), dependencies=WRITES)
async def init_git(app: AppServices, who: Who, where: Directory, workspace: CurrentWorkspace) -> Project:
    """Make the directory a git repository, unless it is in one."""
    await init_repository(workspace, app.live, app.disposal, app.sandbox)
    return await current_project(app, who, await location_of(app, who, where))


@project.patch("/{projectID}", operation_id="project.update", responses=documented(400, 404), dependencies=MANAGES)
async def update_project(app: AppServices, project_id: ProjectIdPath, body: ProjectUpdate) -> Project:
    return await app.projects.update(project_id, name=body.name, icon=body.icon, commands=body.commands)


@routes.get("/agent", tags=["agent"], operation_id="app.agents", dependencies=READS)
async def agents(instance: CurrentInstance) -> list[Agent]:
    return [agent.model_copy(update={"options": masked(agent.options)}) for agent in instance.agents.values()]


@routes.get("/command", tags=["command"], operation_id="command.list", dependencies=READS)
async def command_list(instance: CurrentInstance) -> list[Command]:
    """The directory's own commands and its MCP servers' prompts."""
    return list(await all_commands(instance))


@routes.get("/skill", tags=["skill"], operation_id="app.skills", dependencies=READS)
async def skills(instance: CurrentInstance) -> list[Skill]:
    return list(instance.extensions.skills)


@routes.get("/plugin", tags=["plugin"], operation_id="plugin.list", dependencies=READS)
async def statuses(instance: CurrentInstance) -> list[ExtensionStatus]:
    """What became of the plugins and tool files that the directory's configuration names."""
    return list(instance.extensions.plugins)


@routes.get("/experimental/tool/ids", tags=["tool"], operation_id="tool.ids", dependencies=READS)
async def tool_ids(app: AppServices, instance: CurrentInstance) -> list[str]:
    return list(dict.fromkeys([*app.toolbox.ids(), *(tool.id for tool in instance.extensions.tools)]))


@routes.get("/experimental/tool", tags=["tool"], operation_id="tool.list", dependencies=READS)
async def tool_list(app: AppServices, instance: CurrentInstance, provider: str, model: str) -> list[ToolListItem]:
    found = instance.models.find(ModelRef(provider_id=provider, model_id=model))
    subagents = [agent for agent in instance.agents.values() if agent.mode != "primary"]
    toolbox, extensions = app.toolbox, instance.extensions
    tools = toolbox.for_model(found, instance.config, instance.flags, subagents, extensions.skills)
    tools |= {tool.id: tool for tool in extensions.tools if tool.id not in toolbox.ids()}
    return [ToolListItem(id=tool.id, description=tool.description, parameters=tool.schema) for tool in tools.values()]


@routes.post("/instance/dispose", tags=["instance"], dependencies=MANAGES)
async def dispose(app: AppServices, here: Here) -> bool:
    """Stop what runs in a directory and close it; the next request opens it anew."""
    await app.disposal.directory(here.directory)
    return True


configuration = router("", 400, 403)
global_config = router("/global/config", 400, 403, tags=["global"])
auth = router("/auth", 400, tags=["auth"])


@configuration.get("/config", tags=["config"], response_model=Config, dependencies=READS)
async def get(who: Who, instance: CurrentInstance) -> Response:
    return _shown(instance.config, may_manage=who.may_manage)


@configuration.patch("/config", tags=["config"], response_model=Config, dependencies=MANAGES)
async def update(workspace: CurrentWorkspace, body: dict[str, Any]) -> Response:
    """Change the directory's own configuration file; keys that the body does not name stay as they are."""
    await workspace.patch_config(body)
    return _shown((await workspace.config()).config)


@global_config.get("", operation_id="global.config.get", response_model=Config, dependencies=ADMIN_READS)
async def get_global(who: Who) -> Response:
    """The user's own configuration, which holds in all directories."""
    return _shown(await read_global_config(), may_manage=who.may_manage)


@global_config.patch("", operation_id="global.config.update", response_model=Config, dependencies=MANAGES)
async def update_global(app: AppServices, body: dict[str, Any]) -> Response:
    """Change the user's own configuration file; keys that the body does not name stay as they are."""
    return _shown(await patch_global_config(app.database.locks, body))


def _shown(config: Config, *, may_manage: bool = True) -> Response:
    """Not by orjson, which writes no number beyond 64 bits, as a project's file may have."""
    return json_bytes(to_json(patch.masked_config(config, may_manage=may_manage), inf_nan_mode="null"))


@configuration.get("/config/providers", tags=["config"], operation_id="config.providers", dependencies=READS)
async def connected(instance: CurrentInstance) -> ConnectedProviders:
    return config_providers(instance.models.connected)


@configuration.get("/provider", tags=["provider"], operation_id="provider.list", dependencies=READS)
async def providers(app: AppServices, instance: CurrentInstance) -> ProviderList:
    return provider_list(app.known, instance.models.connected, app.instances.settings(instance))


@configuration.get("/provider/auth", tags=["provider"], operation_id="provider.auth", dependencies=READS)
async def methods(app: AppServices, here: Here) -> dict[str, list[ProviderAuthMethod]]:
    return auth_methods(app.known)


ProviderPath = Annotated[str, Path(alias="providerID", min_length=1)]
"""An organisation is named by its address, slashes and all."""


@auth.put("/{providerID:path}", operation_id="auth.set", dependencies=WRITES)
async def set_key(app: AppServices, who: Who, provider_id: ProviderPath, body: Auth) -> bool:
    """A member's own key is stored for them, encrypted. The server's key is kept in the data directory in a file that only the
    server's user can read."""
    await put_key(app, who, provider_id, body)
    return True


@auth.delete("/{providerID:path}", operation_id="auth.remove", dependencies=WRITES)
async def delete_key(app: AppServices, who: Who, provider_id: ProviderPath) -> bool:
    await remove_key(app, who, provider_id)
    return True


# The provider keys that a request reads and changes: a member's own, stored encrypted, else the server's.


async def stored_keys(app: Server, who: Principal) -> Mapping[str, Auth]:
    """The keys that the principal may change, by provider: the server's, or a member's own."""
    if who.may_manage:
        return app.auth.all()
    return await app.user_keys.for_user(who.name)


async def put_key(app: Server, who: Principal, provider_id: str, key: Auth) -> None:
    """Stores a member's own key, or the server's in a file for the server's user alone. Raises AdminsOnly, BadRequest."""
    if isinstance(key, ApiAuth):
        key = key.model_copy(update={"key": key.key.strip()})  # a line's end is copied along
        if not key.key:
            raise BadRequest("key must not be empty", ["key"])
    if who.may_manage:
        app.auth.set(provider_id, key)
    elif isinstance(key, WellKnownAuth):
        raise AdminsOnly  # an organisation's configuration is everybody's
    else:
        await app.user_keys.put(who.name, provider_id, key)


async def remove_key(app: Server, who: Principal, provider_id: str) -> None:
    if who.may_manage:
        app.auth.remove(provider_id)
    else:
        await app.user_keys.remove(who.name, provider_id)
