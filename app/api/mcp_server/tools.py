"""The tools. Each is a model of its arguments, which are named as in the API, and the requests that the tool makes."""

import re
from typing import Annotated, ClassVar, Literal

from mcp_types import Tool, ToolAnnotations
from pydantic import ConfigDict, Field

from app.api.client import ApiClient, Json, shortened
from app.api.mcp_server.resources import diff_text, window
from app.api.mcp_server.turn import FollowedTurn, Report, text_of, waiting_requests
from app.schema.base import Wire

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
WORKS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
"""For tools that let an agent go on, with the tools and the network that the agent has."""

SessionArgument = Annotated[
    str, Field(pattern=r"^ses[A-Za-z0-9_.-]*$", description="Of a session: create_session or list_sessions")
]
MessageArgument = Annotated[str, Field(pattern="^msg", description="Of a message of the session: list_messages")]
DirectoryArgument = Annotated[str | None, Field(description="A project's directory as the server sees it; its own if absent")]
Seconds = Annotated[
    float | None, Field(gt=0, le=24 * 3600, description="How long to wait at most, for clients that give up long calls")
]
Characters = Annotated[int, Field(ge=1, le=200_000)]
Count = Annotated[int, Field(ge=1, le=100)]

_SHOWN = ("id", "title", "directory", "parentID", "agent", "model", "summary", "cost", "time", "owner", "pinned", "revert")
"""The fields of a session that an agent may need."""


class SessionTool(Wire):
    """The docstring tells models what the tool does; the class's name is the tool's. TOOLS has each subclass."""

    hints: ClassVar[ToolAnnotations]
    model_config = ConfigDict(extra="forbid")

    async def call(self, api: ApiClient, report: Report) -> Json:
        """Raises ApiRefused."""
        raise NotImplementedError

    def given(self) -> Json:
        """The arguments that are given, but the id that stands in the address."""
        return self.model_dump(mode="json", exclude={"session_id", "request_id"}, exclude_none=True)

    @classmethod
    def tool_name(cls) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def described(cls) -> Tool:
        schema = cls.model_json_schema()
        del schema["title"]
        return Tool(name=cls.tool_name(), description=schema.pop("description"), input_schema=schema, annotations=cls.hints)


def shown(session: Json) -> Json:
    return {name: session[name] for name in _SHOWN if session.get(name) is not None}


async def followed(api: ApiClient, session_id: str, report: Report) -> FollowedTurn:
    return FollowedTurn(api, await api.get(f"/session/{session_id}"), report)


# Work.


class CreateSession(SessionTool):
    """Make a session in a project's directory. It does nothing until it is prompted."""

    hints = ADDS
    directory: DirectoryArgument = None
    title: Annotated[str | None, Field(max_length=1000, description="Without one the agent's first answer gets it")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        where = {"directory": self.directory} if self.directory else {}
        return shown(await api.post("/session", {"title": self.title} if self.title else {}, **where))


class PromptSession(SessionTool):
    """Prompt a session's agent and wait. It may read, write and run what its permissions allow. `state`: `idle` when it has
    answered; `aborted`; `asking` with the `permissions` or `questions` that it waits for; `running` when `seconds` have passed.
    Cancelling the call aborts the turn. A prompt to a session that works joins its turn."""

    hints = WORKS
    session_id: SessionArgument
    text: Annotated[str, Field(min_length=1, description="The prompt")]
    agent: Annotated[str | None, Field(description="Who answers: build (the default), plan, or one of the project's")] = None
    model: Annotated[str | None, Field(pattern="^[^/]+/.+", description="provider/model; that of the session if absent")] = None
    seconds: Seconds = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        prompt: Json = {"parts": [{"type": "text", "text": self.text}]}
        if self.agent is not None:
            prompt["agent"] = self.agent
        if self.model is not None:
            provider, _, model = self.model.partition("/")
            prompt["model"] = {"providerID": provider, "modelID": model}
        return await (await followed(api, self.session_id, report)).prompt(prompt, self.seconds)


class WaitForSession(SessionTool):
    """Wait until the session's turn ends or asks something. Use it after answering what a session asked, or when a call returned
    before the end. `state`: as for prompt_session."""

    hints = READS
    session_id: SessionArgument
    seconds: Seconds = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return await (await followed(api, self.session_id, report)).wait(self.seconds)


class AbortSession(SessionTool):
    """Stop what a session does. What it has done stays."""

    hints = STOPS
    session_id: SessionArgument

    async def call(self, api: ApiClient, report: Report) -> Json:
        await api.post(f"/session/{self.session_id}/abort")
        return {"sessionID": self.session_id, "state": "idle"}


# What the agent asks.


class ListRequests(SessionTool):
    """The permissions and questions that wait for an answer, of all sessions in a directory."""

    hints = READS
    directory: DirectoryArgument = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return dict(await waiting_requests(api, self.directory))


class AnswerPermission(SessionTool):
    """Let the agent do what it asked for, or not. Ask your user first, unless they have said so."""

    hints = WORKS
    request_id: Annotated[str, Field(pattern=r"^per[A-Za-z0-9_.-]*$", description="Of a permission request")]
    reply: Annotated[Literal["once", "always", "reject"], Field(description="always: what its `always` names is not asked again")]
    message: Annotated[str | None, Field(description="With reject: what the agent is to do instead")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        await api.post(f"/permission/{self.request_id}/reply", self.given())
        return {"requestID": self.request_id, "reply": self.reply}


class AnswerQuestion(SessionTool):
    """Answer what the agent asked."""

    hints = WORKS
    request_id: Annotated[str, Field(pattern=r"^que[A-Za-z0-9_.-]*$", description="Of a question request")]
    answers: Annotated[
        list[list[str]] | None, Field(description="For each question the labels that are chosen, or own words; absent: no answer")
    ] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        if self.answers is None:
            await api.post(f"/question/{self.request_id}/reject")
        else:
            await api.post(f"/question/{self.request_id}/reply", self.given())
        return {"requestID": self.request_id}


# Reading.


class ListSessions(SessionTool):
    """Sessions of all directories, those worked on last first, without those of subagents."""

    hints = READS
    directory: Annotated[str | None, Field(description="Only of this directory")] = None
    search: Annotated[str | None, Field(max_length=2000, description="Part of the title")] = None
    before: Annotated[float | None, Field(description="The next page: `time.updated` of the last one here")] = None
    limit: Count = 20

    async def call(self, api: ApiClient, report: Report) -> Json:
        wanted = {"directory": self.directory, "search": self.search, "cursor": self.before, "limit": self.limit, "roots": "true"}
        found = await api.get("/experimental/session", **{name: value for name, value in wanted.items() if value is not None})
        return {"sessions": [shown(each) for each in found]}


class SearchMessages(SessionTool):
    """Find what was said or done in earlier sessions: parts of messages in which all words of the query occur, newest first."""

    hints = READS
    query: Annotated[str, Field(min_length=1, max_length=1000)]
    directory: Annotated[str | None, Field(description="Only sessions of exactly this directory")] = None
    session_id: SessionArgument | None = None
    limit: Count = 20
    cursor: Annotated[str | None, Field(description="`next` of the page before")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return dict(await api.get("/find/message", **self.wire()))


class ListMessages(SessionTool):
    """The newest messages of a session, each with its id and how its text begins: what to fork at, or to revert."""

    hints = READS
    session_id: SessionArgument
    limit: Count = 20

    async def call(self, api: ApiClient, report: Report) -> Json:
        found = await api.get(f"/session/{self.session_id}/message", limit=self.limit)
        infos = ((each["info"], shortened(text_of(each))) for each in found)
        return {"messages": [{"id": info["id"], "role": info["role"], "text": text} for info, text in infos]}


class ReadSession(SessionTool):
    """The transcript of a session as Markdown: prompts, answers, tool calls, changed files. A long one in pieces, the last one
    first: `offset` says where it begins in the whole."""

    hints = READS
    session_id: SessionArgument
    offset: Annotated[int | None, Field(ge=0, description="Where to begin, in characters; absent: the end")] = None
    limit: Characters = 20_000

    async def call(self, api: ApiClient, report: Report) -> Json:
        whole = api.download(f"/session/{self.session_id}/export", format="markdown")
        found = await window(whole, self.limit, self.offset)
        return {"text": found.text, "offset": found.begin, "size": found.size}


class DiffSession(SessionTool):
    """What a session has changed in files, as a unified diff; or one prompt's part of it."""

    hints = READS
    session_id: SessionArgument
    message_id: Annotated[str | None, Field(pattern="^msg", description="Of a prompt")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return {"text": diff_text(await api.get(f"/session/{self.session_id}/diff", **self.given()))}


# Going back.


class ForkSession(SessionTool):
    """Copy a session, to go on differently from there. Files are not copied."""

    hints = ADDS
    session_id: SessionArgument
    message_id: Annotated[str | None, Field(pattern="^msg", description="The copy ends before this message")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return shown(await api.post(f"/session/{self.session_id}/fork", self.given()))


class PreviewRevert(SessionTool):
    """What revert_session would do to the files, as a diff (`revert.diff`). Nothing is changed."""

    hints = READS
    session_id: SessionArgument
    message_id: MessageArgument
    part_id: Annotated[str | None, Field(description="From this part of the message on")] = None

    async def call(self, api: ApiClient, report: Report) -> Json:
        return shown(await api.post(f"/session/{self.session_id}/revert", {**self.given(), "dryRun": True}))


class RevertSession(SessionTool):
    """Take back a message and all after it, and what they did to files. Look at preview_revert first. unrevert_session undoes it
    until the session is prompted again."""

    hints = CHANGES
    session_id: SessionArgument
    message_id: MessageArgument
    part_id: Annotated[str | None, Field(description="From this part of the message on")] = None
    files: Annotated[bool, Field(description="false: the files stay as they are")] = True

    async def call(self, api: ApiClient, report: Report) -> Json:
        return shown(await api.post(f"/session/{self.session_id}/revert", self.given()))


class UnrevertSession(SessionTool):
    """Undo revert_session: the messages are back, and the files as they were before it."""

    hints = CHANGES
    session_id: SessionArgument

    async def call(self, api: ApiClient, report: Report) -> Json:
        return shown(await api.post(f"/session/{self.session_id}/unrevert"))


TOOLS = {tool.tool_name(): tool for tool in SessionTool.__subclasses__()}
