"""A directory's paths, project, agents, commands, skills and tools."""

import os
from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import Response

from app.api.access import may_enter
from app.api.deps import TRUE, Directory, documented, instance_of, json_bytes, location_of, wire, workspace_of
from app.api.json_route import ServerRequest, router
from app.intake.mcp_commands import all_commands
from app.schema.agent import Agent, Command, Skill
from app.schema.base import Wire
from app.schema.part import ModelRef
from app.schema.project import Project, ProjectCommands, ProjectDirectory, ProjectIcon
from app.session.rows import json_array
from app.util import paths
from app.util.secrets import masked

routes = router()


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


def _array(values: Any) -> Response:
    return json_bytes(json_array([value.wire_json() for value in values]))


@routes.get("/path", operation_id="path.get", response_model=Paths, tags=["path"], responses=documented(400, 403))
async def path(request: ServerRequest, where: Directory) -> Response:
    location = await location_of(request, where)
    return wire(
        Paths(
            home=str(paths.home()),
            state=str(paths.state_home() / "opensession"),
            config=str(paths.opencode_config_dir()),
            worktree=location.worktree,
            directory=location.directory,
        )
    )


@routes.get("/project", operation_id="project.list", response_model=list[Project], tags=["project"])
async def projects(request: ServerRequest) -> Response:
    app, principal = request.services, request.principal
    if principal.may_see_all:
        return json_bytes(await app.directories.projects.all_json())
    return json_bytes(await app.directories.projects.visible_json(lambda path: may_enter(app, principal, path)))


@routes.get(
    "/project/current", operation_id="project.current", response_model=Project, tags=["project"], responses=documented(400, 403)
)
async def current_project(request: ServerRequest, where: Directory) -> Response:
    app, principal = request.services, request.principal
    project = await app.directories.projects.get((await location_of(request, where)).project_id)
    return wire(project if principal.may_see_all else project.with_sandboxes_in(lambda path: may_enter(app, principal, path)))


@routes.get(
    "/project/{projectID}/directories",
    operation_id="project.directories",
    response_model=list[ProjectDirectory],
    tags=["project"],
    responses=documented(400),
)
async def project_directories(request: ServerRequest, project_id: Annotated[str, Path(alias="projectID")]) -> Response:
    """The checkouts that are known of a project; none of an unknown one."""
    app, principal = request.services, request.principal
    project = await app.directories.projects.find(project_id)
    known = project.directories() if project else []
    real = zip(known, map(os.path.realpath, known), strict=True)
    return _array(ProjectDirectory(directory=path) for path, without_links in real if may_enter(app, principal, without_links))


@routes.post(
    "/project/git/init",
    operation_id="project.initGit",
    response_model=Project,
    tags=["project"],
    responses=documented(400, 403, 409),
)
async def init_git(request: ServerRequest, where: Directory) -> Response:
    """Make the directory a git repository, unless it is in one."""
    app, principal = request.services, request.principal
    await app.vcs.repository_init.make(await workspace_of(request, where))
    project = await app.directories.projects.get((await location_of(request, where)).project_id)
    return wire(project if principal.may_see_all else project.with_sandboxes_in(lambda path: may_enter(app, principal, path)))


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
    projects = request.services.directories.projects
    return wire(await projects.update(project_id, name=body.name, icon=body.icon, commands=body.commands))


@routes.get("/agent", operation_id="app.agents", response_model=list[Agent], tags=["agent"], responses=documented(400, 403))
async def agents(request: ServerRequest, where: Directory) -> Response:
    agents = (await instance_of(request, where)).agents.values()
    return _array(agent.model_copy(update={"options": masked(agent.options)}) for agent in agents)


@routes.get(
    "/command", operation_id="command.list", response_model=list[Command], tags=["command"], responses=documented(400, 403)
)
async def command_list(request: ServerRequest, where: Directory) -> Response:
    """The directory's own and its MCP servers' prompts."""
    return _array(await all_commands(await instance_of(request, where)))


@routes.get("/skill", operation_id="app.skills", response_model=list[Skill], tags=["skill"], responses=documented(400, 403))
async def skills(request: ServerRequest, where: Directory) -> Response:
    return _array((await instance_of(request, where)).extensions.skills)


@routes.get(
    "/experimental/tool/ids", operation_id="tool.ids", response_model=list[str], tags=["tool"], responses=documented(400, 403)
)
async def tool_ids(request: ServerRequest, where: Directory) -> list[str]:
    instance = await instance_of(request, where)
    return list(dict.fromkeys([*request.services.directories.toolbox.ids(), *(tool.id for tool in instance.extensions.tools)]))


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
    instance = await instance_of(request, where)
    found = instance.models.find(ModelRef(provider_id=provider, model_id=model))
    subagents = [agent for agent in instance.agents.values() if agent.mode != "primary"]
    toolbox, extensions = request.services.directories.toolbox, instance.extensions
    tools = toolbox.for_model(found, instance.config, instance.flags, subagents, extensions.skills)
    tools |= {tool.id: tool for tool in extensions.tools if tool.id not in toolbox.ids()}
    return _array(ToolListItem(id=tool.id, description=tool.description(), parameters=tool.schema()) for tool in tools.values())


@routes.post(
    "/instance/dispose", operation_id="instance.dispose", response_model=bool, tags=["instance"], responses=documented(400, 403)
)
async def dispose(request: ServerRequest, where: Directory) -> Response:
    """Stop what runs in a directory and close it; the next request opens it anew."""
    await request.services.runs.disposal.directory((await location_of(request, where)).directory)
    return json_bytes(TRUE)
