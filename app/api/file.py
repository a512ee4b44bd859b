"""Looking into a project: text and files found, directories listed, files shown, what differs from HEAD; and messages of all
sessions, found by their words."""

import os
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Query

from app.api.deps import (
    AppServices,
    CurrentInstance,
    CurrentWorkspace,
    Directory,
    PageCursors,
    Who,
    location_of,
    search_place_of,
    workspace_of,
)
from app.api.documented import documented
from app.api.json_route import router
from app.api.roles import READS
from app.browse.content import list_directory, view_file
from app.browse.reach import AllowedPaths, folder_nodes, folders_towards
from app.browse.search import FileSearch, best, find_text
from app.schema.base import SessionID
from app.schema.browse import ChangedFile, FileNode, Symbol, TextMatch, ViewedFile
from app.schema.errors import BadRequest
from app.schema.search import FoundParts
from app.server import Server
from app.session.search import MAX_WORDS, find_parts, words_of
from app.storage.part_texts import TextFilter
from app.users.principal import Principal
from app.vcs.comparison import changed_in_checkout
from app.workspace.workspace import Workspace

routes = router("", 400, 403)
routers = (routes,)
files = FileSearch()

FilePath = Annotated[str, Query(alias="path", description="From the directory on, or absolute")]


def paths_in(app: Server, who: Principal, workspace: Workspace) -> AllowedPaths:
    return AllowedPaths(workspace.location, workspace.directories, lambda real: app.workspaces.admits(who, real))


async def _reach(app: AppServices, who: Who, workspace: CurrentWorkspace) -> AllowedPaths:
    return paths_in(app, who, workspace)


async def _folders_below(app: AppServices, who: Who, where: Directory) -> list[str]:
    """The folders that lead from a directory down to the roots below it; none where the directory itself may be worked in."""
    if not where or "\0" in where or not os.path.isabs(where):  # noqa: PTH117
        return []
    await app.users.all()  # whose roots these are
    real = os.path.realpath(where)  # noqa: ASYNC240  no slower than the look-ups that follow
    return folders_towards(real, app.workspaces.roots_below(who, real))


Reach = Annotated[AllowedPaths, Depends(_reach)]
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
    """As the language servers find them that have started: at most 10 of each."""
    found = await instance.extensions.language_servers.symbols(query)
    return [symbol for symbol in found if not instance.hides(unquote(urlsplit(symbol.location.uri).path))]


@routes.get("/file", tags=["file"], operation_id="file.list", dependencies=READS)
async def list_files(app: AppServices, who: Who, where: Directory, folders: FoldersBelow, path: FilePath) -> list[FileNode]:
    """Directories first. For a directory above those that you may work in: the folders that lead down to them."""
    if where and path.strip("/") in ("", ".") and folders:
        return folder_nodes(where, folders)
    return await list_directory(paths_in(app, who, await workspace_of(app, who, where)), path)


@routes.get("/file/content", tags=["file"], operation_id="file.read", responses=documented(413), dependencies=READS)
async def read_file(reach: Reach, path: FilePath) -> ViewedFile:
    """Empty when there is no such file."""
    return await view_file(reach, path)


@routes.get("/file/status", tags=["file"], dependencies=READS)
async def status(reach: Reach) -> list[ChangedFile]:
    return await changed_in_checkout(reach)


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
