"""What a directory is and has: paths, project, branch, agents, commands, skills, tools."""

from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import Response

from app.api.deps import TRUE, Directory, documented, json_bytes, place_of, wire
from app.api.json_route import ServerRequest, router
from app.intake.mcp_commands import all_commands
from app.provider.models.selection import find
from app.schema.agent import Agent, Command, Skill
from app.schema.base import Wire
from app.schema.project import Project, ProjectCommands, ProjectIcon
from app.session.rows import json_array
from app.util import paths

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
async def path(request: ServerRequest, where: Directory) -> Response:
    place = await place_of(request, where)
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
async def projects(request: ServerRequest) -> Response:
    return json_bytes(await request.services.projects.all_json())


@routes.get(
    "/project/current", operation_id="project.current", response_model=Project, tags=["project"], responses=documented(400, 403)
)
async def current_project(request: ServerRequest, where: Directory) -> Response:
    return wire(await request.services.projects.get((await place_of(request, where)).project_id))


@routes.patch(
    "/project/{projectID}",
    operation_id="project.update",
    response_model=Project,
    tags=["project"],
    responses=documented(400, 404),
)
async def update_project(
    request: ServerRequest, project_id: Annotated[str, Path(alias="projectID")], body: ProjectUpdate
) -> Response:
    return wire(await request.services.projects.update(project_id, name=body.name, icon=body.icon, commands=body.commands))


@routes.get("/vcs", operation_id="vcs.get", response_model=VcsInfo, tags=["vcs"], responses=documented(400, 403))
async def vcs(request: ServerRequest, where: Directory) -> Response:
    """An empty name: HEAD is detached, or the directory lies outside git."""
    workspace = await request.services.instances.workspaces.get(where)
    return wire(VcsInfo(branch=await request.services.branches.current(workspace)))


@routes.get("/agent", operation_id="app.agents", response_model=list[Agent], tags=["agent"], responses=documented(400, 403))
async def agents(request: ServerRequest, where: Directory) -> Response:
    return _array((await request.services.instances.get(where)).agents.values())


@routes.get(
    "/command", operation_id="command.list", response_model=list[Command], tags=["command"], responses=documented(400, 403)
)
async def command_list(request: ServerRequest, where: Directory) -> Response:
    """The directory's own and its MCP servers' prompts."""
    return _array(await all_commands(await request.services.instances.get(where)))


@routes.get("/skill", operation_id="app.skills", response_model=list[Skill], tags=["skill"], responses=documented(400, 403))
async def skills(request: ServerRequest, where: Directory) -> Response:
    return _array((await request.services.instances.get(where)).skills)


@routes.get(
    "/experimental/tool/ids", operation_id="tool.ids", response_model=list[str], tags=["tool"], responses=documented(400, 403)
)
async def tool_ids(request: ServerRequest, where: Directory) -> list[str]:
    instance = await request.services.instances.get(where)
    return list(dict.fromkeys([*request.services.toolbox.ids(), *(tool.id for tool in instance.tools)]))


@routes.get(
    "/experimental/tool",
    operation_id="tool.list",
    response_model=list[ToolListItem],
    tags=["tool"],
    responses=documented(400, 403),
)
async def tool_list(
    request: ServerRequest, where: Directory, provider: Annotated[str, Query()], model: Annotated[str, Query()]
) -> Response:
    instance = await request.services.instances.get(where)
    found = find(instance.connected, provider, model, instance.known)
    subagents = [agent for agent in instance.agents.values() if agent.mode != "primary"]
    tools = request.services.toolbox.for_model(found, instance.config, instance.flags, subagents, instance.skills)
    tools |= {tool.id: tool for tool in instance.tools if tool.id not in request.services.toolbox.ids()}
    return _array(ToolListItem(id=tool.id, description=tool.description(), parameters=tool.schema()) for tool in tools.values())


@routes.post(
    "/instance/dispose", operation_id="instance.dispose", response_model=bool, tags=["instance"], responses=documented(400, 403)
)
async def dispose(request: ServerRequest, where: Directory) -> Response:
    """Stop what runs in a directory and let go of it; its next user finds it anew."""
    await request.services.disposal.directory((await place_of(request, where)).directory)
    return json_bytes(TRUE)
