"""A project's files: searches, listings and contents; changes since HEAD, patches, worktrees. And the search in the messages of
all sessions."""

import os
from functools import partial
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Query
from fastapi.responses import Response

from app.api.deps import (
    AppServices,
    CurrentInstance,
    CurrentWorkspace,
    Directory,
    Here,
    PageCursors,
    Who,
    location_of,
    search_place_of,
    workspace_of,
)
from app.api.errors import BadRequestError, Responses, described_answer, documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.project.location import Location
from app.record.text_search import TextFilter
from app.schema.base import SessionID
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.project import (
    ChangedFile,
    CreatedWorktree,
    FileNode,
    Symbol,
    TextMatch,
    VcsApplied,
    VcsApplyError,
    VcsFileDiff,
    VcsFileStatus,
    VcsInfo,
    VcsPatch,
    ViewedFile,
    WorktreeCreateInput,
    WorktreeDirectory,
)
from app.schema.session import FoundParts
from app.server import Server
from app.sessions.search import MAX_WORDS, find_parts, words_of
from app.users.principal import Principal
from app.util.project_files import resolved
from app.workspace.browse.allowed_paths import AllowedPaths, folder_nodes, folders_towards
from app.workspace.browse.content import list_directory, view_file
from app.workspace.browse.search import FileSearch, best, find_text
from app.workspace.vcs import comparison
from app.workspace.vcs.comparison import changed_in_checkout
from app.workspace.vcs.patching import apply_patch
from app.workspace.workspace import Workspace

routes = router("", 400, 403)
vcs = router("/vcs", 400, 403, tags=["vcs"])
worktrees = router("/experimental/worktree", 400, 403, tags=["worktree"])
routers = (vcs, worktrees, routes)
files = FileSearch()

FilePath = Annotated[str, Query(alias="path", description="From the directory on, or absolute")]


def allowed_paths(app: Server, who: Principal, workspace: Workspace) -> AllowedPaths:
    return AllowedPaths(workspace.location, workspace.directories, lambda real: app.workspaces.admits(who, real))


async def _allowed(app: AppServices, who: Who, workspace: CurrentWorkspace) -> AllowedPaths:
    return allowed_paths(app, who, workspace)


async def _folders_below(app: AppServices, who: Who, where: Directory) -> list[str]:
    """The folders that lead from a directory down to the roots below it; none if the client may work in the directory itself."""
    if not where or "\0" in where or not os.path.isabs(where):  # noqa: PTH117
        return []
    await app.users.all()  # loads the users, whose roots `roots_below` looks at
    real = resolved(where)  # not in a thread: it takes no longer than what follows
    return folders_towards(real, app.workspaces.roots_below(who, real)) if real else []


Allowed = Annotated[AllowedPaths, Depends(_allowed)]
FoldersBelow = Annotated[list[str], Depends(_folders_below)]


@routes.get("/find", tags=["find"], dependencies=READS)
async def text(
    app: AppServices, who: Who, workspace: CurrentWorkspace, pattern: Annotated[str, Query(max_length=2000)]
) -> list[TextMatch]:
    """Lines that match a regular expression of ripgrep: at most 10 of a file, 1,000 in all."""
    return await find_text(search_place_of(app, who, workspace), pattern)


@routes.get("/find/file", tags=["find"], operation_id="find.files", dependencies=READS)
async def find_files(
    app: AppServices,
    who: Who,
    where: Directory,
    folders: FoldersBelow,
    query: Annotated[str, Query(max_length=1000)],
    dirs: Literal["true", "false"] = "true",
    type: Literal["file", "directory"] | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 10,
) -> list[str]:
    """Files, and directories with a `/` at the end, whose paths have the letters of the query; the best match first.
    For a directory above those that you may work in: the folders that lead down to them."""
    if folders:
        return best(query, folders, limit)
    place = search_place_of(app, who, await workspace_of(app, who, where))
    return await files.find(place, query, type or ("all" if dirs == "true" else "file"), limit)


@routes.get("/find/symbol", tags=["find"], operation_id="find.symbols", dependencies=READS)
async def find_symbols(instance: CurrentInstance, query: Annotated[str, Query(max_length=1000)]) -> list[Symbol]:
    """The symbols that the started language servers find: at most 10 of each server."""
    found = await instance.extensions.language_servers.symbols(query)
    return [symbol for symbol in found if not instance.hides(unquote(urlsplit(symbol.location.uri).path))]


@routes.get("/file", tags=["file"], operation_id="file.list", dependencies=READS)
async def list_files(app: AppServices, who: Who, where: Directory, folders: FoldersBelow, path: FilePath) -> list[FileNode]:
    """Directories first. For a directory above those that you may work in: the folders that lead down to them."""
    if where and path.strip("/") in ("", ".") and folders:
        return folder_nodes(where, folders)
    return await list_directory(allowed_paths(app, who, await workspace_of(app, who, where)), path)


@routes.get("/file/content", tags=["file"], operation_id="file.read", responses=documented(413), dependencies=READS)
async def read_file(allowed: Allowed, path: FilePath) -> ViewedFile:
    """Empty when there is no such file."""
    return await view_file(allowed, path)


@routes.get("/file/status", tags=["file"], dependencies=READS)
async def status(allowed: Allowed) -> list[ChangedFile]:
    return await changed_in_checkout(allowed)


Milliseconds = Annotated[float | None, Query(allow_inf_nan=False)]


@routes.get("/find/message", tags=["find"], operation_id="find.messages", dependencies=READS)
async def find_messages(
    app: AppServices,
    who: Who,
    query: Annotated[str, Query(max_length=1000, description="Words that must all occur in one part, whole or within others")],
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory; else of any")] = None,
    session_id: Annotated[SessionID | None, Query(alias="sessionID")] = None,
    role: Literal["user", "assistant"] | None = None,
    kind: Annotated[Literal["text", "reasoning", "tool"] | None, Query(alias="in")] = None,
    since: Annotated[Milliseconds, Query(description="Only parts that began at or after this time (ms)")] = None,
    until: Annotated[Milliseconds, Query(description="Only parts that began at or before this time (ms)")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
) -> FoundParts:
    """Newest first. Case and accents are ignored."""
    words, cursors = _words(query), PageCursors(app, who, "cursor", "next")
    wanted = TextFilter(
        words=(),
        limit=limit,
        before=None if cursor is None else cursors.read(cursor),
        session_id=session_id,
        directory=None if directory is None else (await location_of(app, who, directory)).directory,
        owner=who.visible_owner,
        role=role,
        kind=kind,
        since=since,
        until=until,
    )
    results, before = await find_parts(app.store, words, wanted)
    return FoundParts(results=results, next=None if before is None else cursors.write(before))


def _words(query: str) -> list[str]:
    """Raises BadRequest."""
    words = words_of(query)
    if not words:
        raise BadRequest("query has no word to look for", ["query"], query)
    if len(words) > MAX_WORDS:
        raise BadRequest(f"query may have at most {MAX_WORDS} words", ["query"], query)
    return words


PATCH_TYPE = "text/x-diff; charset=utf-8"
ContextLines = Annotated[int, Query(ge=0, description="Lines of context; whole files if absent")]


@vcs.get("", operation_id="vcs.get", dependencies=READS)
async def info(app: AppServices, workspace: CurrentWorkspace) -> VcsInfo:
    """An empty branch: HEAD is detached, or the directory lies outside git."""
    branch = await app.branches.current(workspace)
    default = await comparison.default_branch(workspace.location.git) if workspace.location.git else None
    return VcsInfo(branch=branch, default_branch=default.name if default else None)


@vcs.get("/status", name="status", dependencies=READS)
async def vcs_status(here: Here) -> list[VcsFileStatus]:
    """The directory's files that differ from HEAD, untracked files included."""
    return await comparison.changed_files(here)


@vcs.get("/diff", dependencies=READS)
async def diff(here: Here, mode: comparison.Mode, context: ContextLines = comparison.WHOLE_FILE) -> list[VcsFileDiff]:
    """The changed files with patches: since HEAD (`git`), or since the branch left the default branch (`branch`)."""
    return await comparison.diffs(here, mode, context)


_PATCH: Responses = {200: {"content": {PATCH_TYPE: {"schema": {"type": "string"}}}}, **documented(413)}
_APPLIED = {400: described_answer("Bad request", VcsApplyError, BadRequestError), **documented(409)}


@vcs.get("/diff/raw", operation_id="vcs.diff.raw", response_class=Response, responses=_PATCH, dependencies=READS)
async def raw_diff(here: Here) -> Response:
    """The changes since HEAD as one patch, which `POST /vcs/apply` takes."""
    return Response(await comparison.raw_patch(here), media_type=PATCH_TYPE)


@vcs.post("/apply", responses=_APPLIED, dependencies=WRITES)
async def apply(app: AppServices, allowed: Allowed, body: VcsPatch) -> VcsApplied:
    """Apply a patch to the directory's files: all of it, or nothing. Refused while a session works in the checkout."""
    await apply_patch(allowed, body.patch, app.live, app.database.locks, app.sandbox)
    return VcsApplied()


def _may_enter(app: Server, who: Principal, path: str) -> bool:
    return app.workspaces.admits(who, resolved(path))


async def _whole_checkout(app: AppServices, who: Who, here: Here) -> Location:
    """The request's location. Raises DirectoryForbidden for a client that may work only in a part of the checkout: a worktree
    copies all of it."""
    if here.is_git and not who.may_see_all and not _may_enter(app, who, here.worktree):
        raise DirectoryForbidden(f"{here.worktree} is not a directory that you may work in.", directory=here.worktree)
    return here


@worktrees.get("", operation_id="worktree.list", dependencies=READS)
async def list_worktrees(app: AppServices, who: Who, here: Here) -> list[str]:
    """The project's checkouts but the main one, whether this server made them or not."""
    return [path for path in await app.worktrees.list(here) if _may_enter(app, who, path)]


@worktrees.post("", dependencies=WRITES)
async def create(
    app: AppServices, checkout: Annotated[Location, Depends(_whole_checkout)], body: WorktreeCreateInput
) -> CreatedWorktree:
    """Make a worktree on a branch of its own. The event `worktree.ready` says that its files exist; then start commands run."""
    return await app.worktrees.create(checkout, body)


@worktrees.delete("", responses=documented(409), dependencies=WRITES)
async def remove(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Remove a worktree that this server made, and its branch. Refused while a session works in it."""
    await app.worktrees.remove(here, body.directory, partial(_may_enter, app, who))
    return True


@worktrees.post("/reset", responses=documented(409), dependencies=WRITES)
async def reset(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Give a worktree that this server made the files of the default branch, no others. Refused while a session works in it."""
    await app.worktrees.reset(here, body.directory, partial(_may_enter, app, who))
    return True
