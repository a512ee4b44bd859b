"""What a directory is and has: paths, project, branch, agents, commands, skills, tools."""

from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import Response

from app.agent.intake.mcp_commands import all_commands
from app.api.deps import TRUE, Directory, ServicesDep, documented, json_bytes, place_of, wire
from app.api.json_route import router
from app.provider.selection import find
from app.schema.agent import Agent, Command, Skill
from app.schema.base import Wire
from app.schema.project import Project, ProjectCommands, ProjectIcon
from app.session.rows import json_array
from app.util import paths
from app.workspace.project import branch

routes = router()


class Paths(Wire):
    home: str
    state: str
    config: str
    worktree: str
    directory: str


class VcsInfo(Wire):
    branch: str


class ToolListItem(Wire):
    id: str
    description: str
    parameters: Any


class ProjectUpdate(Wire):
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


def _array(values: Any) -> Response:
    return json_bytes(json_array([value.wire_json() for value in values]))


@routes.get("/path", operation_id="path.get", response_model=Paths, tags=["path"], responses=documented(400, 403))
async def path(app: ServicesDep, where: Directory) -> Response:
    place = await place_of(app, where)
    return wire(
        Paths(
            home=str(paths.home()),
            state=str(paths.state_home() / "opensession"),
            config=str(paths.opencode_config_dir()),
            worktree=place.worktree,
            directory=place.directory,
        )
    )


@routes.get("/project", operation_id="project.list", response_model=list[Project], tags=["project"])
async def projects(app: ServicesDep) -> Response:
    return json_bytes(await app.projects.all_json())


@routes.get(
    "/project/current", operation_id="project.current", response_model=Project, tags=["project"], responses=documented(400, 403)
)
async def current_project(app: ServicesDep, where: Directory) -> Response:
    return wire(await app.projects.get((await place_of(app, where)).project_id))


@routes.patch(
    "/project/{projectID}",
    operation_id="project.update",
    response_model=Project,
    tags=["project"],
    responses=documented(400, 404),
)
async def update_project(app: ServicesDep, project_id: Annotated[str, Path(alias="projectID")], body: ProjectUpdate) -> Response:
    return wire(await app.projects.update(project_id, name=body.name, icon=body.icon, commands=body.commands))


@routes.get("/vcs", operation_id="vcs.get", response_model=VcsInfo, tags=["vcs"], responses=documented(400, 403))
async def vcs(app: ServicesDep, where: Directory) -> Response:
    instance = await app.instances.workspaces.get(where)
    name = await branch(instance.found.checkout) if instance.place.is_git else None
    return wire(VcsInfo(branch=name or ""))


@routes.get("/agent", operation_id="app.agents", response_model=list[Agent], tags=["agent"], responses=documented(400, 403))
async def agents(app: ServicesDep, where: Directory) -> Response:
    return _array((await app.instances.get(where)).agents.values())


@routes.get(
    "/command", operation_id="command.list", response_model=list[Command], tags=["command"], responses=documented(400, 403)
)
async def command_list(app: ServicesDep, where: Directory) -> Response:
    """The directory's own and its MCP servers' prompts."""
    return _array(await all_commands(await app.instances.get(where)))


@routes.get("/skill", operation_id="app.skills", response_model=list[Skill], tags=["skill"], responses=documented(400, 403))
async def skills(app: ServicesDep, where: Directory) -> Response:
    return _array((await app.instances.get(where)).skills)


@routes.get(
    "/experimental/tool/ids", operation_id="tool.ids", response_model=list[str], tags=["tool"], responses=documented(400, 403)
)
async def tool_ids(app: ServicesDep, where: Directory) -> list[str]:
    instance = await app.instances.get(where)
    return list(dict.fromkeys([*app.toolbox.ids(), *(tool.id for tool in instance.tools)]))


@routes.get(
    "/experimental/tool",
    operation_id="tool.list",
    response_model=list[ToolListItem],
    tags=["tool"],
    responses=documented(400, 403),
)
async def tool_list(
    app: ServicesDep, where: Directory, provider: Annotated[str, Query()], model: Annotated[str, Query()]
) -> Response:
    instance = await app.instances.get(where)
    found = find(instance.connected, provider, model, instance.known)
    subagents = [agent for agent in instance.agents.values() if agent.mode != "primary"]
    tools = app.toolbox.for_model(found, instance.config, instance.flags, subagents, instance.skills)
    tools |= {tool.id: tool for tool in instance.tools if tool.id not in app.toolbox.ids()}
    return _array(ToolListItem(id=tool.id, description=tool.description(), parameters=tool.schema()) for tool in tools.values())


@routes.post(
    "/instance/dispose", operation_id="instance.dispose", response_model=bool, tags=["instance"], responses=documented(400, 403)
)
async def dispose(app: ServicesDep, where: Directory) -> Response:
    """Stop what runs in a directory and let go of it; its next user finds it anew."""
    await app.disposal.directory((await place_of(app, where)).directory)
    return json_bytes(TRUE)
