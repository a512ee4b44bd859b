"""The plugins' hooks, one function each, as the turn calls them. Without such a hook a function does and copies nothing.

A hook receives and changes JSON with the API's names. The result is validated here before it is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from pydantic import TypeAdapter

from app.permissions.service import PluginDecision
from app.providers.base import ModelRequest
from app.schema.base import Wire
from app.schema.message import CommandInput, MessageWithParts, PromptInput, UserMessage
from app.schema.model import Agent
from app.schema.part import Part, PartInput, ReasoningPart, TextPart, ToolPart
from app.schema.permission import Action, PermissionRequest
from app.tools.base import ToolError, ToolResult
from app.tools.plugins.runner import HookFailed, HookRunner
from app.util import ids
from app.workspace.instance import Instance

Json = dict[str, Any]


T = TypeVar("T")


class _ChosenParams(Wire):
    temperature: float | None
    top_p: float | None
    top_k: int | None
    options: Json


class _ToolOutput(Wire):
    title: str
    output: str
    metadata: Json


class Compacting(Wire):
    """`prompt` replaces the request for a summary; `context` is added to it."""

    context: list[str] = []
    prompt: str | None = None


@cache
def _field(name: str, kind: type[T]) -> Callable[[Json], T]:
    """Reads one value of what a hook has changed."""
    adapter = TypeAdapter(kind)
    return lambda output: adapter.validate_python(output[name])


# Hooks on prompts.


async def chat_message(instance: Instance, prompt: PromptInput, message: MessageWithParts) -> MessageWithParts:
    """Passes a user message to the hook before it is stored."""
    hooks = instance.extensions.hooks
    if "chat.message" not in hooks.named:
        return message
    asked = prompt.model_dump(mode="json", exclude_none=True, include={"agent", "model", "message_id", "variant"})
    given = {"sessionID": message.info.session_id, **asked}
    info = message.info
    assert isinstance(info, UserMessage)
    output = {"message": info.wire(), "parts": [part.wire() for part in message.parts]}
    return await hooks.change("chat.message", given, output, partial(_changed_message, instance, info)) or message


def _changed_message(instance: Instance, before: UserMessage, output: Json) -> MessageWithParts:
    own = {"sessionID": before.session_id, "messageID": before.id}
    parts = [{"id": ids.ascending("part"), **part, **own} for part in output["parts"]]
    changed = UserMessage.model_validate(output["message"])
    if (changed.id, changed.session_id) != (before.id, before.session_id):
        raise ValueError("a message keeps its id and its session")
    instance.agent(changed.agent)
    if changed.model != before.model:
        instance.models.find(changed.model)
    return MessageWithParts.model_construct(info=changed, parts=_field("parts", list[Part])({"parts": parts}))


async def command_parts(hooks: HookRunner, session_id: str, wanted: CommandInput, prompt: PromptInput) -> PromptInput:
    """Passes the parts of a command to the hook before they become a prompt."""
    if "command.execute.before" not in hooks.named:
        return prompt
    given = {"command": wanted.command, "sessionID": session_id, "arguments": wanted.arguments}
    output = {"parts": [part.wire() for part in prompt.parts]}
    changed = await hooks.change("command.execute.before", given, output, _field("parts", list[PartInput]))
    return prompt.model_copy(update={"parts": changed}) if changed is not None else prompt


# Hooks on requests to the model.


async def messages(hooks: HookRunner, history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """The conversation for one request; the stored one does not change."""
    name = "experimental.chat.messages.transform"
    if name not in hooks.named:
        return history
    output = {"messages": [message.wire() for message in history]}
    changed = await hooks.change(name, {}, output, _field("messages", list[MessageWithParts]))
    return history if changed is None else changed


async def request(instance: Instance, request: ModelRequest, agent: Agent, user: UserMessage) -> ModelRequest:
    """Changes the system prompt, parameters and headers of any request, including those for titles and summaries."""
    hooks = instance.extensions.hooks
    if "experimental.chat.system.transform" in hooks.named:
        request = await _with_system(hooks, request)
    if "chat.params" in hooks.named or "chat.headers" in hooks.named:
        given = _call_json(instance, request, agent, user)
        params = {"temperature": request.temperature, "topP": request.top_p, "topK": request.top_k, "options": request.options}
        if chosen := await hooks.change("chat.params", given, params, _ChosenParams.model_validate):
            request = replace(request, **dict(chosen))
        headers = await hooks.change("chat.headers", given, {"headers": request.headers}, _field("headers", dict[str, str]))
        request = request if headers is None else replace(request, headers=headers)
    return request


async def _with_system(hooks: HookRunner, request: ModelRequest) -> ModelRequest:
    given, output = {"sessionID": request.session_id, "model": request.model.wire()}, {"system": list(request.system)}
    changed = await hooks.change("experimental.chat.system.transform", given, output, _field("system", list[str]))
    if not changed:
        return request
    first, *rest = changed
    # Providers cache the first text, which stays the same from turn to turn.
    together = len(rest) > 1 and first == request.system[0]
    return replace(request, system=(first, "\n".join(rest)) if together else tuple(changed))


def _call_json(instance: Instance, request: ModelRequest, agent: Agent, user: UserMessage) -> Json:
    provider = instance.models.connected[request.model.provider_id]
    return {
        "sessionID": request.session_id,
        "agent": agent.wire(),
        "model": request.model.wire(),
        "provider": provider.model_dump(mode="json", exclude_none=True, exclude={"models", "key"}),
        "message": user.wire(),
    }


async def compacting(hooks: HookRunner, session_id: str) -> Compacting:
    name = "experimental.session.compacting"
    output: Json = {"context": [], "prompt": None}
    return await hooks.change(name, {"sessionID": session_id}, output, Compacting.model_validate) or Compacting()


# Hooks on the model's output.


async def text_complete(hooks: HookRunner, part: TextPart | ReasoningPart) -> str | None:
    """The text to store instead of a finished one; None if the hook does not change it."""
    name = "experimental.text.complete"
    if name not in hooks.named:
        return None
    given = {"sessionID": part.session_id, "messageID": part.message_id, "partID": part.id}
    return await hooks.change(name, given, {"text": part.text.rstrip()}, _field("text", str))


async def tool_args(hooks: HookRunner, part: ToolPart) -> Json:
    """The arguments of a tool call. Raises ToolError if the hook fails, because it may be a guard against the call."""
    args = part.state.input
    if "tool.execute.before" not in hooks.named:
        return args
    try:
        changed = await hooks.change("tool.execute.before", _call_of(part), {"args": args}, _field("args", Json), guards=True)
    except HookFailed as error:
        raise ToolError(str(error)) from error
    return args if changed is None else changed


async def tool_result(hooks: HookRunner, part: ToolPart, result: ToolResult) -> ToolResult:
    if "tool.execute.after" not in hooks.named:
        return result
    given = {**_call_of(part), "args": part.state.input}
    output = {"title": result.title, "output": result.output, "metadata": result.metadata}
    changed = await hooks.change("tool.execute.after", given, output, _ToolOutput.model_validate)
    return replace(result, **dict(changed)) if changed else result


def _call_of(part: ToolPart) -> Json:
    return {"tool": part.tool, "sessionID": part.session_id, "callID": part.call_id}


def permission_decision(hooks: HookRunner) -> PluginDecision | None:
    return partial(_advise, hooks) if "permission.ask" in hooks.named else None


async def _advise(hooks: HookRunner, shown: PermissionRequest, action: Action) -> Action:
    changed = await hooks.change("permission.ask", shown.wire(), {"status": action}, _field("status", Action))
    return changed or action
