"""The requests of an editor: the methods of the Agent Client Protocol, each a few calls of the server."""

import asyncio
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, Client, RequestError, schema
from acp.helpers import ContentBlock

from app import __version__
from app.api.client import ApiClient, Json
from app.cli.acp.asks import KINDS_ALONE
from app.cli.acp.choices import (
    MODE,
    OTHERS_TOOLS,
    DirectoryChoices,
    McpServerList,
    SessionChoices,
    mcp_config,
    mcp_name,
    mcp_rules,
)
from app.cli.acp.editor_server import INTERNAL, NOT_FOUND, DirectoryFeed, EditorServer
from app.cli.acp.editor_session import EditorSession, session_of

log = logging.getLogger(__name__)

PAGE = 100
"""The sessions in one answer to session/list."""
DELETE = "session/delete"
"""A method that the SDK has no route for: it is called as an extension."""
MCP_SECONDS = 5.0
"""How long a session waits for the editor's MCP servers; a slower one joins it later."""

_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {"list": {}, "fork": {}, "resume": {}, "close": {}, "delete": {}},
}


class EditorAgent:
    """`keeps_turns`: the server outlives the editor, so turns go on without it."""

    def __init__(self, server: EditorServer, *, keeps_turns: bool) -> None:
        self._server = server
        self._keeps_turns = keeps_turns
        self._editor: Client
        self._offers = schema.ClientCapabilities()
        self._shows_kinds_alone = False
        self._sessions: dict[str, EditorSession] = {}
        self._feeds: dict[str, DirectoryFeed] = {}
        self._opening = asyncio.Lock()
        self._roots: dict[str, str] = {}
        """By a subagent's session, the one that the editor has open."""
        self._slow: set[asyncio.Task[Any]] = set()

    def on_connect(self, conn: Client) -> None:
        self._editor = conn

    # The connection.

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        """The server is started just after the answer."""
        self._offers = client_capabilities or schema.ClientCapabilities()
        self._shows_kinds_alone = client_info is not None and client_info.name in KINDS_ALONE
        asyncio.get_running_loop().call_later(0.05, self._server.start)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="opensession", title="Opensession", version=__version__),
            agent_capabilities=schema.AgentCapabilities.model_validate(_CAPABILITIES),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        raise RequestError.invalid_params({"details": f"There is no login method {method_id}: none is needed here"})

    async def ext_method(self, method: str, params: Json) -> Json:
        if method != DELETE:
            raise RequestError.method_not_found(f"_{method}")
        await self._delete_session(schema.DeleteSessionRequest.model_validate(params).session_id)
        return {}

    async def ext_notification(self, method: str, params: Json) -> None:
        """Ignored: no notification is known."""

    async def leave(self) -> None:
        """The editor is gone. A server of its own ends with it: turns there are aborted, and their records finished."""
        for session in list(self._sessions.values()):
            try:
                if not session.is_running:
                    await self._release_mcp(session)
                elif self._keeps_turns:
                    session.fail(RequestError(INTERNAL, "The editor has gone; the turn goes on at the server"))
                else:
                    await session.cancel()
            except RequestError as error:
                log.error("%s was not left: %s", session.id, error)
            await session.close()

    async def close(self) -> None:
        for feed in self._feeds.values():
            await feed.close()
        for task in self._slow:
            task.cancel()
        await asyncio.gather(*self._slow, return_exceptions=True)

    # Sessions.

    async def new_session(
        self, cwd: str, additional_directories: Any = None, mcp_servers: McpServerList = None, **_: Any
    ) -> schema.NewSessionResponse:
        directory = await self._require_directory(cwd, mcp_servers)
        info = await (await self._server.api()).post("/session", {"permission": [OTHERS_TOOLS]}, directory=directory)
        session = await self._open(info, mcp_servers)
        return schema.NewSessionResponse(session_id=session.id, **_session_choices(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: McpServerList = None, additional_directories: Any = None, **_: Any
    ) -> schema.LoadSessionResponse:
        session = await self._reopen(cwd, session_id, mcp_servers, replays=True)
        return schema.LoadSessionResponse(**_session_choices(session))

    async def resume_session(
        self, session_id: str, cwd: str, additional_directories: Any = None, mcp_servers: McpServerList = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        session = await self._reopen(cwd, session_id, mcp_servers)
        return schema.ResumeSessionResponse(**_session_choices(session))

    async def fork_session(
        self, session_id: str, cwd: str, additional_directories: Any = None, mcp_servers: McpServerList = None, **_: Any
    ) -> schema.ForkSessionResponse:
        await self._require_directory(cwd, mcp_servers)
        info = await self._read_session(session_id)
        forked = await (await self._server.api()).post(f"/session/{session_id}/fork", {}, directory=info["directory"])
        session = await self._open(forked, mcp_servers)
        return schema.ForkSessionResponse(session_id=session.id, **_session_choices(session))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> schema.ListSessionsResponse:
        """Newest first. The cursor is the time when the last session of a page was updated."""
        if cursor is not None and not cursor.isdecimal():
            raise RequestError.invalid_params({"details": f"{cursor} is no cursor of a list of sessions"})
        directory = {"directory": await self._require_directory(cwd)} if cwd else {}
        before = {"cursor": cursor} if cursor else {}
        found = await (await self._server.api()).get("/experimental/session", roots="true", limit=PAGE, **directory, **before)
        following = str(found[-1]["time"]["updated"]) if len(found) >= PAGE else None
        return schema.ListSessionsResponse(sessions=[_session_info(info) for info in found], next_cursor=following)

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        session = self._session(session_id)
        if session.is_running:
            await session.cancel()
            await session.answered()
        await session.close()
        if self._sessions.get(session_id) is session:
            del self._sessions[session_id]
        await self._release_mcp(session)
        return schema.CloseSessionResponse()

    async def _delete_session(self, session_id: str) -> None:
        """One that is not there is deleted already."""
        if session_id in self._sessions:
            await self.close_session(session_id)
        if not re.fullmatch(r"ses_\w+", session_id, re.ASCII):
            return
        try:
            await (await self._server.api()).delete(f"/session/{session_id}")
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise

    async def _require_directory(self, cwd: str, mcp_servers: McpServerList = None) -> str:
        """The directory as the server names it. Raises RequestError."""
        for server in mcp_servers or ():
            mcp_config(server)
        if not Path(cwd).is_absolute():
            raise RequestError.invalid_params({"details": f"cwd must be an absolute path, and {cwd} is not"})
        return str((await (await self._server.api()).get("/path", directory=cwd))["directory"])

    async def _read_session(self, session_id: str) -> Json:
        if not session_id.startswith("ses"):
            raise RequestError(NOT_FOUND, f"There is no session {session_id}")
        return dict(await (await self._server.api()).get(f"/session/{session_id}"))

    async def _reopen(self, cwd: str, session_id: str, mcp_servers: McpServerList, *, replays: bool = False) -> EditorSession:
        """A session works where it was created, wherever the editor is."""
        await self._require_directory(cwd, mcp_servers)
        return await self._open(await self._read_session(session_id), mcp_servers, replays=replays)

    async def _open(self, info: Json, mcp_servers: McpServerList, *, replays: bool = False) -> EditorSession:
        """Its events wait until the session has been read. One that cannot be opened is not open."""
        directory = info["directory"]
        api = await self._server.api()
        catalogue = await DirectoryChoices.of(api, directory)
        choices = SessionChoices(catalogue, info, await _last_prompt(api, info))
        session = EditorSession(api, self._editor, self._offers, info, choices, shows_kinds_alone=self._shows_kinds_alone)
        if replaced := self._sessions.get(session.id):
            replaced.fail(RequestError(INTERNAL, "The session was opened again meanwhile"))
            await replaced.close()
        self._sessions[session.id] = session
        try:
            await self._feed(directory)
            await self._take_mcp(session, mcp_servers, catalogue.agents[session.choices.agent])
            if replays:
                await session.replay()
            await session.open(self._deliver)
        except RequestError as error:
            session.fail(error)
            self._sessions.pop(session.id, None)
            raise
        return session

    def _session(self, session_id: str) -> EditorSession:
        found = self._sessions.get(session_id)
        if found is None:
            raise RequestError(NOT_FOUND, f"The session {session_id} is not open here: session/load or session/resume opens it")
        return found

    # The user's actions in a session.

    async def prompt(self, session_id: str, prompt: list[ContentBlock], **_: Any) -> schema.PromptResponse:
        session = self._session(session_id)
        if not prompt:
            raise RequestError.invalid_params({"details": "A prompt says something"})
        return await session.prompt(prompt, self._feed)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session := self._sessions.get(session_id):
            await session.cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        session = self._session(session_id)
        await session.choose(MODE, mode_id)
        await session.tell_options()
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(session_id)
        await session.choose(config_id, value)
        return schema.SetSessionConfigOptionResponse(config_options=list(session.choices.options()))

    # Events.

    async def _feed(self, directory: str) -> None:
        """Opened with the directory's first session, and again after it was lost."""
        async with self._opening:
            if directory not in self._feeds:
                feed = DirectoryFeed(await self._server.api(), directory, self._deliver, self._lost)
                await feed.open()
                self._feeds[directory] = feed

    async def _deliver(self, event: Json) -> None:
        if event["type"] in ("session.created", "session.updated"):
            self._note_parent(event["properties"]["info"])
        if event["type"] == "server.resync":
            for each in list(self._sessions.values()):
                await each.catch_up()
        session_id = session_of(event)
        if session_id is None:
            return
        if session_id not in self._sessions and event["type"] in ("permission.asked", "question.asked"):
            await self._find_root(session_id)
        session = self._sessions.get(self._roots.get(session_id, session_id))
        if session is not None:
            await session.take(event)

    def _note_parent(self, info: Json) -> None:
        parent = info.get("parentID")
        root = self._roots.get(parent, parent) if parent else None
        if root in self._sessions and info["id"] not in self._sessions:
            self._roots[info["id"]] = root

    async def _find_root(self, session_id: str) -> None:
        """Notes the root session of a subagent that worked before the editor came."""
        if session_id in self._roots:
            return
        try:
            info = await self._read_session(session_id)
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            return  # it was deleted meanwhile
        if parent := info.get("parentID"):
            if parent not in self._sessions:
                await self._find_root(parent)
            self._note_parent(info)

    def _lost(self, directory: str, error: RequestError) -> None:
        self._feeds.pop(directory, None)
        log.error("%s", error)
        for session in self._sessions.values():
            if session.directory == directory:
                session.fail(error)

    # MCP servers.

    async def _take_mcp(self, session: EditorSession, servers: McpServerList, agent: Json) -> None:
        configs = {mcp_name(server.name, session.id): mcp_config(server) for server in servers or ()}
        if not configs:
            return
        rules = {"permission": mcp_rules(session.id, agent)}
        await session.server.patch(f"/session/{session.id}", rules, directory=session.directory)
        session.mcp_names = list(configs)
        adding = [asyncio.create_task(self._add_mcp(session, name, config)) for name, config in configs.items()]
        _, slow = await asyncio.wait(adding, timeout=MCP_SECONDS)
        self._slow |= slow

    async def _add_mcp(self, session: EditorSession, name: str, config: Json) -> None:
        """A session works without a server that fails, and its user reads why."""
        try:
            statuses = await session.server.post("/mcp", {"name": name, "config": config}, directory=session.directory)
        except RequestError as error:
            log.error("The MCP server %s is not there: %s", name, error)
            return
        if problem := statuses.get(name, {}).get("error"):
            log.error("The MCP server %s is not there: %s", name, problem)

    async def _release_mcp(self, session: EditorSession) -> None:
        for name in session.mcp_names:
            try:
                await session.server.post(f"/mcp/{name}/disconnect", directory=session.directory)
            except RequestError as error:
                log.error("The MCP server %s was not closed: %s", name, error)


async def _last_prompt(api: ApiClient, info: Json) -> Json | None:
    if info["time"]["created"] == info["time"]["updated"]:
        return None
    newest = await api.get(f"/session/{info['id']}/message", limit=20, directory=info["directory"])
    return next((each["info"] for each in reversed(newest) if each["info"]["role"] == "user"), None)


def _session_choices(session: EditorSession) -> Json:
    return {"modes": session.choices.modes(), "config_options": list(session.choices.options())}


def _session_info(info: Json) -> schema.SessionInfo:
    updated = datetime.fromtimestamp(info["time"]["updated"] / 1000, UTC)
    return schema.SessionInfo(session_id=info["id"], cwd=info["directory"], title=info["title"], updated_at=updated.isoformat())
