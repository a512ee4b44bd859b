"""Structured answers: what a turn does for a prompt whose `format` is a JSON schema. Pure.

The model is offered a tool for its answer (`app.tool.structured_output`) and must call it. A call that does not fit the schema,
and an answer of text alone, are attempts that failed; after some the turn gives up.
"""

from collections.abc import Sequence
from typing import Any

from app.agent.definitions import prompt_text
from app.provider.base import TextBlock, UserTurn
from app.schema.message import AssistantMessage, JsonSchemaFormat, MessageWithParts, UserMessage
from app.schema.part import Failed, ToolPart
from app.tool.base import Tool
from app.tool.structured_output import STRUCTURED_OUTPUT, StructuredOutputTool

DEFAULT_RETRIES = 2


def is_wanted(prompt: UserMessage | None) -> bool:
    return prompt is not None and isinstance(prompt.format, JsonSchemaFormat)


def retries_of(prompt: UserMessage) -> int:
    wanted = prompt.format.retry_count if isinstance(prompt.format, JsonSchemaFormat) else None
    return DEFAULT_RETRIES if wanted is None else wanted


def lacks(answer: AssistantMessage, prompt: UserMessage | None) -> bool:
    """Whether an answer has not the form that is wanted."""
    return is_wanted(prompt) and not answer.summary and answer.error is None and answer.structured is None


def is_given_up(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    return is_wanted(prompt) and sum(map(_has_failed, _answers(history, prompt))) > retries_of(prompt)


def tool_for(prompt: UserMessage, answer: AssistantMessage) -> dict[str, Tool[Any]]:
    """The tool that sets the structured answer, where one is wanted."""
    if not isinstance(prompt.format, JsonSchemaFormat):
        return {}

    def accept(structured: dict[str, Any]) -> None:
        answer.structured = structured

    return {STRUCTURED_OUTPUT: StructuredOutputTool(prompt.format.schema_, accept)}


def instructions(prompt: UserMessage) -> tuple[str, ...]:
    """Of the system prompt."""
    return (prompt_text("structured-output"),) if is_wanted(prompt) else ()


def reminders(history: Sequence[MessageWithParts], prompt: UserMessage) -> tuple[UserTurn, ...]:
    """For a model whose last answer was text alone."""
    answers = _answers(history, prompt) if is_wanted(prompt) else []
    is_text = bool(answers) and not any(isinstance(part, ToolPart) for part in answers[-1].parts)
    return (UserTurn((TextBlock(prompt_text("structured-output-reminder")),)),) if is_text else ()


def _answers(history: Sequence[MessageWithParts], prompt: UserMessage) -> list[MessageWithParts]:
    return [answer for answer in history if isinstance(answer.info, AssistantMessage) and answer.info.parent_id == prompt.id]


def _has_failed(answer: MessageWithParts) -> bool:
    calls = [part for part in answer.parts if isinstance(part, ToolPart)]
    return not calls or any(_is_for_the_answer(call) and isinstance(call.state, Failed) for call in calls)


def _is_for_the_answer(call: ToolPart) -> bool:
    return STRUCTURED_OUTPUT in (call.tool, call.state.input.get("tool"))
