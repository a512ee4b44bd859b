"""Translates stored sessions and messages into the second API's; a message is one entry of its session. Pure.

The entry is None for a message that this API does not have, such as the request for a summary.
"""

from collections.abc import Iterable, Sequence

from app.schema import timeline as v2
from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage, UserTime
from app.schema.part import (
    AgentPart,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    FileSource,
    Part,
    PatchPart,
    Pending,
    ReasoningPart,
    Running,
    SourceText,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from app.schema.session import DEFAULT_VARIANT, Session, SessionModel
from app.sessions.revert_target import revert_state

SHELL_TOOL = "bash"


def entries(messages: Sequence[MessageWithParts], requests: Sequence[MessageWithParts] = ()) -> list[v2.SessionMessage]:
    """`requests`: the messages that asked for summaries, if they are not among `messages`."""
    by_id = {message.info.id: message for message in [*requests, *messages]}
    found = [entry(message, by_id.get(summary_request(message) or "")) for message in messages]
    return [message for message in found if message is not None]


def summary_request(message: MessageWithParts) -> str | None:
    """The id of the message that asked for this summary; None if the message is no summary."""
    info = message.info
    return info.parent_id if isinstance(info, AssistantMessage) and info.summary else None


def entry(message: MessageWithParts, request: MessageWithParts | None = None) -> v2.SessionMessage | None:
    """`request`: the message that asked for this one, if this is a summary."""
    info = message.info
    if isinstance(info, UserMessage):
        return _of_user(info, message.parts)
    if info.summary and info.error is None:
        return _compaction(info, message.parts, request)
    if (call := shell_call(message)) is not None:
        return _shell(info, call)
    return _of_assistant(info, message.parts)


def shell_call(message: MessageWithParts) -> ToolPart | None:
    """The command line that a user ran: unlike a model's call, it is in no step."""
    match message.parts:
        case [ToolPart(tool=tool) as call] if tool == SHELL_TOOL:
            return call
    return None


def _of_user(info: UserMessage, parts: Sequence[Part]) -> v2.SessionMessage | None:
    if any(isinstance(part, CompactionPart) for part in parts):
        return None
    texts = [part for part in parts if isinstance(part, TextPart)]
    prompted = [part.text for part in texts if not part.synthetic]
    prompted += [part.prompt for part in parts if isinstance(part, SubtaskPart)]
    files = [_file(part) for part in parts if isinstance(part, FilePart)]
    agents = [_agent(part) for part in parts if isinstance(part, AgentPart)]
    if texts and not (prompted or files or agents):
        text = "\n".join(part.text for part in texts)
        return v2.SessionMessageSynthetic(id=info.id, session_id=info.session_id, time=info.time, text=text)
    return v2.SessionMessageUser(id=info.id, time=info.time, text="\n".join(prompted), files=files or None, agents=agents or None)


def _file(part: FilePart) -> v2.PromptFileAttachment:
    source = _source(part.source.text) if isinstance(part.source, FileSource) else None
    return v2.PromptFileAttachment(uri=part.url, mime=part.mime, name=part.filename, description=part.description, source=source)


def _agent(part: AgentPart) -> v2.PromptAgentAttachment:
    return v2.PromptAgentAttachment(name=part.name, source=_source(part.source) if part.source else None)


def _source(text: SourceText) -> v2.PromptSource:
    return v2.PromptSource(start=text.start, end=text.end, text=text.value)


def _compaction(
    info: AssistantMessage, parts: Sequence[Part], request: MessageWithParts | None
) -> v2.SessionMessageCompaction | None:
    """None until the summary is complete."""
    if info.time.completed is None:
        return None
    is_automatic = request is not None and any(isinstance(part, CompactionPart) and part.auto for part in request.parts)
    reason: v2.CompactionReason = "auto" if is_automatic else "manual"
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    return v2.SessionMessageCompaction(id=info.id, time=UserTime(created=info.time.created), reason=reason, summary=text)


def _shell(info: AssistantMessage, call: ToolPart) -> v2.SessionMessageShell:
    command, time = str(call.state.input.get("command", "")), info.time
    if isinstance(call.state, Completed | Failed):
        time = time.model_copy(update={"completed": call.state.time.end})  # the message ends a moment later
    return v2.SessionMessageShell(id=info.id, time=time, call_id=call.call_id, command=command, output=_output(call))


def _output(call: ToolPart) -> str:
    match call.state:
        case Completed(output=output):
            return output
        case Failed(error=error):
            return error
        case Running(metadata=metadata):
            return str((metadata or {}).get("output", ""))
    return ""


def _of_assistant(info: AssistantMessage, parts: Sequence[Part]) -> v2.SessionMessageAssistant:
    ended = info.time.completed is not None
    return v2.SessionMessageAssistant(
        id=info.id,
        time=info.time,
        agent=info.agent,
        model=SessionModel(id=info.model_id, provider_id=info.provider_id, variant=info.variant or DEFAULT_VARIANT),
        content=[content for part in parts if (content := _content(part, info)) is not None],
        snapshot=_snapshot(parts),
        finish="error" if info.error else info.finish,
        cost=info.cost if ended else None,
        tokens=info.tokens if ended else None,
        error=unknown_error(info.error) if info.error else None,
    )


def unknown_error(error: MessageError) -> v2.SessionErrorUnknown:
    return v2.SessionErrorUnknown(message=getattr(error.data, "message", "") or error.name)


def _snapshot(parts: Iterable[Part]) -> v2.StepSnapshot | None:
    snapshot = v2.StepSnapshot()
    for part in parts:
        match part:
            case StepStartPart(snapshot=str(tree)):
                snapshot.start = snapshot.start or tree
            case StepFinishPart(snapshot=str(tree)):
                snapshot.end = tree
                snapshot.files = snapshot.files or []
            case PatchPart(files=files):
                snapshot.files = files
    return snapshot if snapshot.start or snapshot.end else None


def _content(part: Part, info: AssistantMessage) -> v2.AssistantContent | None:
    match part:
        case TextPart():
            return v2.AssistantText(id=part.id, text=part.text)
        case ReasoningPart():
            time = AssistantTime(created=part.time.start, completed=part.time.end)
            return v2.AssistantReasoning(id=part.id, text=part.text, time=time)
        case ToolPart():
            return _tool(part, info)
    return None


def _tool(part: ToolPart, info: AssistantMessage) -> v2.AssistantTool:
    state: v2.ToolStatePending | v2.ToolStateRunning | v2.ToolStateCompleted | v2.ToolStateError
    match part.state:
        case Pending(raw=raw):
            state, time = v2.ToolStatePending(input=raw), v2.ToolTime(created=info.time.created)
        case Running(time=span) as running:
            state = v2.ToolStateRunning(input=running.input, structured=running.metadata or {}, content=[])
            time = v2.ToolTime(created=span.start, ran=span.start)
        case Completed(time=span) as done:
            state = v2.ToolStateCompleted(input=done.input, structured=done.metadata, content=_tool_content(done))
            time = v2.ToolTime(created=span.start, ran=span.start, completed=span.end, pruned=span.compacted)
        case Failed(time=span) as failed:
            error = v2.SessionErrorUnknown(message=failed.error)
            state = v2.ToolStateError(input=failed.input, structured=failed.metadata or {}, content=[], error=error)
            time = v2.ToolTime(created=span.start, ran=span.start, completed=span.end)
    return v2.AssistantTool(id=part.call_id, name=part.tool, state=state, time=time)


def _tool_content(done: Completed) -> list[v2.ToolContent]:
    files = [v2.ToolFileContent(uri=file.url, mime=file.mime, name=file.filename) for file in done.attachments or ()]
    return [*([v2.ToolTextContent(text=done.output)] if done.output else []), *files]


def session_info(session: Session) -> v2.SessionV2Info:
    time = session.time
    return v2.SessionV2Info(
        id=session.id,
        parent_id=session.parent_id,
        project_id=session.project_id,
        agent=session.agent,
        model=_with_variant(session.model) if session.model else None,
        cost=session.cost,
        tokens=session.tokens,
        time=v2.SessionV2Time(created=time.created, updated=time.updated, archived=time.archived),
        title=session.title,
        location=v2.LocationRef(directory=session.directory),
        subpath=session.path or None,
        revert=revert_state(session.revert) if session.revert and not session.revert.unfinished else None,
    )


def _with_variant(model: SessionModel) -> SessionModel:
    return model.model_copy(update={"variant": model.variant or DEFAULT_VARIANT})
