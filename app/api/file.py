"""Looking into a project: text and files found, directories listed, files shown, what differs from HEAD."""

import os
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import Response

from app.api.access import may_enter, roots_below
from app.api.deps import Directory, documented, json_bytes, location_of, search_place_of, wire, workspace_of
from app.api.json_route import ServerRequest, router
from app.browse.above import folder_nodes, folders_towards
from app.browse.content import view_file
from app.browse.file_search import FileSearch, best
from app.browse.listing import list_directory
from app.browse.reach import AllowedPaths
from app.browse.status import changed_files
from app.browse.text_search import find_text
from app.schema.base import Wire
from app.schema.browse import ChangedFile, FileNode, Symbol, TextMatch, ViewedFile
from app.session.rows import json_array

routes = router(responses=documented(400, 403))
files = FileSearch()

FilePath = Annotated[str, Query(alias="path", description="From the directory on, or absolute")]


async def allowed_paths(request: ServerRequest, where: str | None) -> AllowedPaths:
    app, principal = request.services, request.principal
    workspace = await workspace_of(request, where)
    return AllowedPaths(workspace.location, workspace.directories, lambda real: may_enter(app, principal, real))


async def folders_below(request: ServerRequest, where: str | None) -> list[str]:
    """The folders that lead from a directory down to the roots below it; none where the directory itself may be worked in."""
    if not where or "\0" in where or not os.path.isabs(where):  # noqa: PTH117
        return []
    real = os.path.realpath(where)  # noqa: ASYNC240  no slower than the look-ups that follow
    return folders_towards(real, await roots_below(request.services, request.principal, real))


def _array(values: Sequence[Wire]) -> Response:
    return json_bytes(json_array([value.wire_json() for value in values]))


@routes.get("/find", operation_id="find.text", response_model=list[TextMatch], tags=["find"])
async def text(request: ServerRequest, where: Directory, pattern: Annotated[str, Query(max_length=2000)]) -> Response:
    """Lines that match a regular expression of ripgrep: at most 10 of a file, 1,000 in all."""
    return _array(await find_text(await search_place_of(request, where), pattern))


@routes.get("/find/file", operation_id="find.files", response_model=list[str], tags=["find"])
async def find_files(
    request: ServerRequest,
    where: Directory,
    query: Annotated[str, Query(max_length=1000)],
    dirs: Literal["true", "false"] = "true",
    type: Literal["file", "directory"] | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 10,
) -> list[str]:
    """Files, and directories with a `/` at the end, whose paths have the letters of the query; the best match first.
    For a directory above those that you may work in: the folders that lead down to them."""
    if folders := await folders_below(request, where):
        return best(query, folders, limit)
    kind = type or ("all" if dirs == "true" else "file")
    return await files.find(await search_place_of(request, where), query, kind, limit)


@routes.get("/find/symbol", operation_id="find.symbols", response_model=list[Symbol], tags=["find"])
async def find_symbols(request: ServerRequest, where: Directory, query: Annotated[str, Query()]) -> list[Symbol]:
    """Always empty, as OpenCode's: no language server is asked."""
    await location_of(request, where)
    return []


@routes.get("/file", operation_id="file.list", response_model=list[FileNode], tags=["file"])
async def list_files(request: ServerRequest, where: Directory, path: FilePath) -> Response:
    """Directories first. For a directory above those that you may work in: the folders that lead down to them."""
    if where and path.strip("/") in ("", ".") and (folders := await folders_below(request, where)):
        return _array(folder_nodes(where, folders))
    return _array(await list_directory(await allowed_paths(request, where), path))


@routes.get("/file/content", operation_id="file.read", response_model=ViewedFile, tags=["file"], responses=documented(413))
async def read_file(request: ServerRequest, where: Directory, path: FilePath) -> Response:
    """Empty when there is no such file."""
    return wire(await view_file(await allowed_paths(request, where), path))


@routes.get("/file/status", operation_id="file.status", response_model=list[ChangedFile], tags=["file"])
async def status(request: ServerRequest, where: Directory) -> Response:
    return _array(await changed_files(await allowed_paths(request, where)))
