"""Looking into a directory: its files found, listed and read."""

import asyncio
import mimetypes
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import Response

from app.api.deps import AppServices, Who, search_place_of
from app.api.file import files, paths_in
from app.api.roles import READS
from app.api.v2.errors import ForbiddenError, TaggedAnswer, TaggedError, described
from app.api.v2.shapes import Located, PlaceWorkspace, located, router
from app.browse.content import list_directory, read
from app.schema.base import Wire
from app.schema.browse import FileNode
from app.schema.errors import BadRequest

routes = router("", ForbiddenError, tags=["fs"])

_HARMLESS = {"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"}
"""A project's page that is opened here must not speak to this server in the user's name."""


class FileNotFoundAnswer(TaggedAnswer):
    status = 404
    tag: Literal["FileNotFoundError"] = "FileNotFoundError"
    path: str


class FileSystemEntry(Wire):
    """`path` is from the directory on; a directory's ends with `/`."""

    path: str
    type: Literal["file", "directory"]

    @classmethod
    def of(cls, path: str) -> "FileSystemEntry":
        return cls(path=path, type="directory" if path.endswith("/") else "file")


@routes.get("/fs/find", dependencies=READS)
async def find(
    app: AppServices,
    who: Who,
    workspace: PlaceWorkspace,
    query: Annotated[str, Query(max_length=1000)],
    type: Literal["file", "directory"] | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Located[list[FileSystemEntry]]:
    """Whose paths have the letters of the query; the best match first."""
    found = await files.find(search_place_of(app, who, workspace), query, type or "all", limit)
    return located(workspace.location, list(map(FileSystemEntry.of, found)))


@routes.get("/fs/list", operation_id="v2.fs.list", dependencies=READS)
async def entries(
    app: AppServices,
    who: Who,
    workspace: PlaceWorkspace,
    path: Annotated[str, Query(description="From the directory on, or absolute; the directory itself if absent")] = "",
) -> Located[list[FileSystemEntry]]:
    reach = paths_in(app, who, workspace)
    if not await asyncio.to_thread(FilePath(reach.real(path)).is_dir):
        raise BadRequest(f"There is no directory {path}", ["path"], path)
    return located(workspace.location, list(map(_entry, await list_directory(reach, path))))


_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_READ = {**described(FileNotFoundAnswer), 200: _BYTES}


@routes.get("/fs/read/{path:path}", operation_id="v2.fs.read", response_class=Response, responses=_READ, dependencies=READS)
async def content(app: AppServices, who: Who, workspace: PlaceWorkspace, path: Annotated[str, Path()]) -> Response:
    """The bytes of a file, with the type that its name tells."""
    data = await asyncio.to_thread(read, paths_in(app, who, workspace), path)
    if data is None:
        raise TaggedError(FileNotFoundAnswer(message=f"There is no file {path}", path=path))
    return Response(data, media_type=mimetypes.guess_type(path)[0] or "application/octet-stream", headers=_HARMLESS)


def _entry(node: FileNode) -> FileSystemEntry:
    return FileSystemEntry.of(f"{node.path}/" if node.type == "directory" else node.path)
