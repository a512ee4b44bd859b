"""A task given to another agent: a session of its own under the caller's, never with more rights than the caller's."""

from typing import Any, Protocol

from app.permission.rules import child_rules
from app.schema.agent import Agent
from app.schema.message import AssistantMessage, MessageWithParts, PromptInput
from app.schema.part import ModelRef, Part, TextPart, TextPartInput, ToolPart
from app.schema.permission import Rule, Ruleset
from app.schema.session import Session
from app.schema.tool_state import Completed, Running
from app.session.service import new_session
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.tool.base import SubagentRequest, ToolError, ToolResult
from app.turn.tool_calls import ToolRun
from app.workspace.instance import Instance


class NestedPrompts(Protocol):
    async def answer_nested(self, instance: Instance, session_id: str, prompt: PromptInput) -> bytes:
        """The JSON of the message that answers. Cancelled, it aborts what answers."""
        ...


class SubagentSessions:
    def __init__(self, store: Store, prompts: NestedPrompts) -> None:
        self._store = store
        self._prompts = prompts

    async def run(self, call: ToolRun, request: SubagentRequest) -> ToolResult:
        agent = call.instance.agents.get(request.agent)
        if agent is None:
            raise ToolError(f"Unknown agent type: {request.agent} is not a valid agent type")
        session = await self._session(call, agent, request)
        model = agent.model or _model_of(call)
        progress = _Progress(call, request.description, session.id, model)
        progress.show()
        with self._store.watching(session.id, progress.on_part):
            answer = await self._prompt(call.instance, session.id, agent, model, request.prompt)
        return _result(request, answer, progress.metadata())

    async def _prompt(self, instance: Instance, session_id: str, agent: Agent, model: ModelRef, text: str) -> MessageWithParts:
        off = _switched_off(agent, instance)
        prompt = PromptInput(agent=agent.name, model=model, tools=off, parts=[TextPartInput(text=text)])
        return MessageWithParts.model_validate_json(await self._prompts.answer_nested(instance, session_id, prompt))

    async def _session(self, call: ToolRun, agent: Agent, request: SubagentRequest) -> Session:
        if request.session_id:
            return await self._resumed(call, request.session_id)
        own: Ruleset = [Rule(permission=tool, pattern="*", action="deny") for tool in _switched_off(agent, call.instance)]
        title = f"{request.description} (@{agent.name} subagent)"
        session = new_session(call.instance.location, title, call.session.id)

        def create(tx: SessionTx) -> Session:
            above = tx.of(call.session.id).session()  # as it is now: rules that were set meanwhile hold for the child too
            parent = [*call.agent.permission, *(above.permission or [])]
            rules = child_rules(parent, agent.permission, own)
            child = session.model_copy(update={"permission": rules, "owner": above.owner, "agent": agent.name})
            tx.create(child)
            return child

        return await self._store.write(session.id, call.instance.location.directory, create)

    async def _resumed(self, call: ToolRun, session_id: str) -> Session:
        """Only a session that this one started may be taken up again: another's could have more rights."""
        session = await self._store.session(session_id)
        if session.parent_id != call.session.id:
            raise ToolError(f"Session {session_id} is not a task of this conversation. Leave session_id out to start a new one.")
        return session


class _Progress:
    """What the caller's part shows of the child: its tool calls so far."""

    def __init__(self, call: ToolRun, title: str, session_id: str, model: ModelRef) -> None:
        self._call = call
        self._title = title
        self._session_id = session_id
        self._model = model
        self._calls: dict[str, dict[str, Any]] = {}

    def on_part(self, part: Part) -> None:
        if isinstance(part, ToolPart):
            titled = part.state.title if isinstance(part.state, Running | Completed) and part.state.title else None
            state = {"status": part.state.status, **({"title": titled} if titled else {})}
            self._calls[part.id] = {"id": part.id, "tool": part.tool, "state": state}
            self.show()

    def show(self) -> None:
        self._call.writer.tool_progress(self._call.part, self._title, self.metadata())

    def metadata(self) -> dict[str, Any]:
        return {
            "summary": list(self._calls.values()),
            "parentSessionId": self._call.session.id,
            "sessionId": self._session_id,
            "model": self._model.wire(),
        }


def _switched_off(agent: Agent, instance: Instance) -> dict[str, bool]:
    """A subagent keeps no todo list of its own, gives out tasks only where its rules speak of them, and has none of the tools
    that the configuration keeps for primary agents."""
    may_delegate = any(rule.permission == "task" for rule in agent.permission)
    tools = ["todowrite", "todoread", *([] if may_delegate else ["task"]), *instance.config.experimental.primary_tools]
    return dict.fromkeys(tools, False)


def _model_of(call: ToolRun) -> ModelRef:
    message = call.writer.message
    return ModelRef(provider_id=message.provider_id, model_id=message.model_id)


def _result(request: SubagentRequest, answer: MessageWithParts, metadata: dict[str, Any]) -> ToolResult:
    info = answer.info
    if isinstance(info, AssistantMessage) and info.error is not None:
        raise ToolError(f"The subagent failed: {getattr(info.error.data, 'message', info.error.name)}")
    texts = [part.text for part in answer.parts if isinstance(part, TextPart)]
    text = texts[-1] if texts else ""
    output = f"{text}\n\n<task_metadata>\nsession_id: {metadata['sessionId']}\n</task_metadata>"
    return ToolResult(title=request.description, output=output, metadata=metadata)
