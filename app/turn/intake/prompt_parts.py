"""Files in a prompt: text and directories are read for the model, images and other binaries are embedded."""

import asyncio
import base64
import mimetypes
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import SplitResult, unquote

import orjson

from app.permissions.editor_files import EditorFiles
from app.permissions.rules import evaluate
from app.schema.errors import BadRequest, unknown
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.message import UserMessage
from app.schema.part import (
    AgentPart,
    AgentPartInput,
    FileContent,
    FilePart,
    FilePartInput,
    Part,
    PartInput,
    ResourceSource,
    SubtaskPart,
    SubtaskPartInput,
    TextPart,
    TextPartInput,
)
from app.sessions.store import Store
from app.tools.base import EditorText, Tool, ToolContext, ToolError, ToolHost
from app.tools.builtin.find import ListParameters, ListTool
from app.tools.builtin.read import ReadParameters, ReadTool
from app.tools.mcp.values import McpFailure
from app.tools.text_file import FileTimes, Stamp
from app.tools.truncation import OutputStore
from app.turn.context.history import synthetic_text
from app.util import ids
from app.workspace.attached_file import data_text, line_range, read_attached, split_url
from app.workspace.instance import Instance


@dataclass(frozen=True, slots=True)
class _AttachedFile:
    """A file part on its way into a message."""

    instance: Instance
    message: UserMessage
    input: FilePartInput
    id: str

    def part(self, **changes: Any) -> FilePart:
        return self._file(self.input.model_copy(update=changes), self.id)

    def extra(self, file: FileContent) -> FilePart:
        return self._file(file.model_copy(update={"filename": file.filename or self.input.filename}), ids.ascending("part"))

    def _file(self, file: FileContent, part_id: str) -> FilePart:
        content = file.model_dump(exclude={"id"})
        return FilePart(id=part_id, session_id=self.message.session_id, message_id=self.message.id, **content)

    async def read(self, path: Path, *, embeds: bool) -> tuple[os.stat_result, bytes]:
        return await asyncio.to_thread(read_attached, self.instance, path, self.input.url, embeds)

    def text(self, text: str) -> TextPart:
        """The model reads this text; users see the file part."""
        return synthetic_text(self.message, text)

    def called(self, tool: str, arguments: dict[str, Any]) -> TextPart:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self.text(f"The {tool} tool was called with this input: {orjson.dumps(given).decode()}")

    def context(self, editors: EditorFiles) -> ToolContext:
        """The user named the file, so reading it needs no permission."""
        return ToolContext(
            session_id=self.message.session_id,
            message_id=self.message.id,
            call_id=self.id,
            agent=self.instance.agents[self.message.agent],
            sandbox_workspace=self.instance.sandbox_workspace,
            host=_PromptHost(editors, self.message.session_id),
            bypass_directory_check=True,
        )


class _PromptHost(ToolHost):
    """Users see the file part of the prompt, not the tool's output."""

    def __init__(self, editors: EditorFiles, session_id: str) -> None:
        self._editors = editors
        self._session_id = session_id

    async def editor(self) -> EditorText | None:
        return partial(self._editors.text, self._session_id) if self._editors.has_editor(self._session_id) else None


@dataclass(frozen=True)
class PromptParts:
    store: Store
    read: ReadTool
    listing: ListTool
    times: FileTimes
    outputs: OutputStore
    editors: EditorFiles

    async def of(self, instance: Instance, message: UserMessage, part: PartInput) -> Sequence[Part]:
        identity = {"session_id": message.session_id, "message_id": message.id}
        content = part.model_dump(exclude={"id"})
        part_id = part.id or ids.ascending("part")
        match part:
            case TextPartInput():
                return [TextPart(id=part_id, **identity, **content)]
            case SubtaskPartInput():
                return [SubtaskPart(id=part_id, **identity, **content)]
            case AgentPartInput():
                return [AgentPart(id=part_id, **identity, **content), _mention(instance, message, part)]
            case FilePartInput():
                return await self._of_file(_AttachedFile(instance, message, part, part_id), part)
            case _:
                assert_never(part)

    async def _of_file(self, file: _AttachedFile, part: FilePartInput) -> list[Part]:
        """The parts that stand for the file. Raises BadRequest for a `file:` URL whose file does not exist."""
        if isinstance(part.source, ResourceSource):
            return await self._of_resource(file, part.source)
        url = split_url(part.url)
        if url.scheme == "file":
            return await self._of_path(file, Path(unquote(url.path)), url)
        if url.scheme == "data" and part.mime == "text/plain":
            return [file.called("read", {"filePath": part.filename}), file.text(data_text(part.url)), file.part()]
        return [file.part()]

    async def _of_resource(self, file: _AttachedFile, source: ResourceSource) -> list[Part]:
        """The parts of an MCP server's resource."""
        called = file.text(f"The resource {file.input.filename or source.uri} ({source.uri}) was read from {source.client_name}")
        try:
            connection = await file.instance.extensions.mcp.connection(source.client_name)
            content = await connection.read_resource(source.uri)
        except McpFailure as failure:
            return [called, self._failed(file, failure)]
        outputs = self.outputs.within(file.instance.config.tool_output)
        bounded = [await outputs.bound(text, may_delegate=False) for text in content.texts]
        binary = [file.text(f"[Binary content of type {found.mime}]") for found in content.files]
        return [called, *(file.text(one.text) for one in bounded), *binary, *_stored_resource(file, content.files)]

    async def _of_path(self, file: _AttachedFile, path: Path, url: SplitResult) -> list[Part]:
        embeds = file.input.mime != "text/plain"
        status, data = await file.read(path, embeds=embeds)
        if stat.S_ISDIR(status.st_mode):
            listed, directory = ListParameters(path=str(path)), file.part(mime="application/x-directory")
            return await self._call(file, self.listing, {"path": str(path)}, listed, directory)
        if embeds:
            return self._embedded(file, path, status, data)
        offset, limit = await self._lines(file, path, url.query)
        read = ReadParameters(file_path=str(path), offset=offset, limit=limit)
        shown = {"filePath": str(path), "offset": offset, "limit": limit}
        return await self._call(file, self.read, shown, read, file.part())

    async def _lines(self, file: _AttachedFile, path: Path, query: str) -> tuple[int | None, int | None]:
        """The query's lines; if they are one line on which a symbol of the file begins, all lines of the symbol."""
        offset, limit = line_range(query)
        servers = file.instance.extensions.language_servers
        if offset is None or limit != 1 or not servers.is_for(path):
            return offset, limit
        with suppress(BadRequest):  # the file is too long for a language server
            text = (await file.read(path, embeds=True))[1].decode("utf-8", "replace")
            limit = await servers.symbol_length(path, text, offset) or limit
        return offset, limit

    async def _call(
        self, file: _AttachedFile, tool: Tool[Any], shown: dict[str, Any], arguments: Any, whole: FilePart
    ) -> list[Part]:
        """The call, its result and the files that it attaches, else the `whole` file. A failure is text for the model; the prompt
        goes on without the file."""
        called = file.called(tool.id, shown)
        try:
            result = await tool.execute(arguments, file.context(self.editors))
        except (ToolError, OSError) as error:
            return [called, self._failed(file, error)]
        files = [file.extra(attachment) for attachment in result.attachments] or [whole]
        return [called, file.text(result.output), *files]

    def _embedded(self, file: _AttachedFile, path: Path, status: os.stat_result, data: bytes) -> list[Part]:
        mime = file.input.mime or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.times.record(file.message.session_id, path, Stamp.of(status))
        url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
        return [file.called("read", {"filePath": str(path)}), file.part(url=url)]

    def _failed(self, file: _AttachedFile, error: Exception) -> TextPart:
        session_id = file.message.session_id
        event = EventSessionError(properties=ErrorOfSession(session_id=session_id, error=unknown(str(error))))
        self.store.post(session_id, file.instance.location.directory, lambda tx: tx.announce(event))
        return file.text(f"Reading {file.input.filename or file.input.url} failed: {error}")


def _stored_resource(file: _AttachedFile, binaries: Sequence[FileContent]) -> list[FilePart]:
    """Text is stored in the message for users, as the model has read it; the model is sent the other files."""
    if not binaries:
        return [file.part(mime="text/plain")]
    first, *others = binaries
    return [file.part(mime=first.mime, url=first.url), *map(file.extra, others)]


def _mention(instance: Instance, message: UserMessage, part: AgentPartInput) -> TextPart:
    """Naming an agent asks the model to give it the task."""
    caller = instance.agents[message.agent]
    refused = evaluate("task", part.name, caller.permission).action == "deny"
    hint = " The user named it, so you may use it although your rules say otherwise." if refused else ""
    return synthetic_text(
        message, f" Use the message above to write a prompt for the subagent {part.name} and call the task tool with it.{hint}"
    )
