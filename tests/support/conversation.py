"""Short ways to write down a stored conversation."""

from collections.abc import Sequence
from typing import Any

from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.model import Agent, Model, ModelApi
from app.schema.part import (
    CompactionPart,
    Completed,
    CompletedTime,
    Ended,
    Failed,
    FilePart,
    ModelRef,
    Part,
    Pending,
    ReasoningPart,
    Running,
    Span,
    Started,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
    ToolState,
)
from app.util import ids

SESSION = "ses_1"


def model(model_id: str = "small-1", provider_id: str = "acme", api_id: str | None = None, **fields: Any) -> Model:
    api = ModelApi(id=api_id or model_id, npm="@ai-sdk/openai-compatible")
    return Model(id=model_id, provider_id=provider_id, api=api, name=model_id, **fields)


def agent(name: str = "build", **fields: Any) -> Agent:
    return Agent(name=name, mode="primary", permission=fields.pop("permission", []), **fields)


def in_message(part: Part, message_id: str) -> Part:
    return part.model_copy(update={"message_id": message_id})


def user(*parts: Part, id: str | None = None, agent: str = "build", **fields: Any) -> MessageWithParts:
    info = UserMessage(
        id=id or ids.ascending("message"),
        session_id=SESSION,
        time=UserTime(created=1),
        agent=agent,
        model=ModelRef(provider_id="acme", model_id="small-1"),
        **fields,
    )
    return MessageWithParts(info=info, parts=[in_message(part, info.id) for part in parts])


def assistant(
    parent: MessageWithParts | str,
    *parts: Part,
    finish: str | None = "stop",
    error: MessageError | None = None,
    agent: str = "build",
    model_id: str = "small-1",
    summary: bool | None = None,
) -> MessageWithParts:
    info = AssistantMessage(
        id=ids.ascending("message"),
        session_id=SESSION,
        time=AssistantTime(created=1, completed=2),
        parent_id=parent if isinstance(parent, str) else parent.info.id,
        provider_id="acme",
        model_id=model_id,
        mode=agent,
        agent=agent,
        path=MessagePath(cwd="/", root="/"),
        finish=finish,
        error=error,
        summary=summary,
    )
    return MessageWithParts(info=info, parts=[in_message(part, info.id) for part in parts])


def _ids() -> dict[str, str]:
    return {"id": ids.ascending("part"), "session_id": SESSION, "message_id": "msg_0"}


def text(content: str = "hi", **fields: Any) -> TextPart:
    return TextPart(**_ids(), text=content, **fields)


def reasoning(content: str = "hm", **fields: Any) -> ReasoningPart:
    return ReasoningPart(**_ids(), text=content, time=Span(start=1, end=2), **fields)


def file(mime: str = "image/png", url: str = "data:image/png;base64,AAAA", filename: str | None = "a.png") -> FilePart:
    return FilePart(**_ids(), mime=mime, url=url, filename=filename)


def step_start() -> StepStartPart:
    return StepStartPart(**_ids())


def step_finish(reason: str = "stop") -> StepFinishPart:
    return StepFinishPart(**_ids(), reason=reason, cost=0, tokens=Tokens())


def subtask(prompt: str = "look", description: str = "Look", agent: str = "general") -> SubtaskPart:
    return SubtaskPart(**_ids(), prompt=prompt, description=description, agent=agent)


def compaction(auto: bool = True) -> CompactionPart:
    return CompactionPart(**_ids(), auto=auto)


def completed(output: str = "done", compacted: int | None = None, attachments: Sequence[FilePart] | None = None) -> Completed:
    time = CompletedTime(start=1, end=2, compacted=compacted)
    return Completed(
        input={"path": "a"},
        output=output,
        title="",
        metadata={},
        time=time,
        attachments=list(attachments) if attachments else None,
    )


def failed(error: str = "Error: no") -> Failed:
    return Failed(input={}, error=error, time=Ended(start=1, end=2))


def running(**fields: Any) -> Running:
    return Running(input={"path": "a"}, time=Started(start=1), **fields)


def tool(state: ToolState | None = None, name: str = "read", call_id: str | None = None, **fields: Any) -> ToolPart:
    return ToolPart(**_ids(), call_id=call_id or ids.call_id(), tool=name, state=state or completed(), **fields)


def pending() -> Pending:
    return Pending()
