from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bare_instance import bare_instance
from conversation import agent, assistant, model
from session_parts import PLACE, Sessions, session

from app.permission.service import PermissionDenied, PermissionRejected, PermissionRejectedWithMessage
from app.provider import base
from app.provider.base import StreamEvent
from app.schema.base import Wire
from app.schema.message import AssistantMessage
from app.schema.part import ReasoningPart, StepStartPart, TextPart, ToolPart
from app.schema.tool_state import Completed, Failed, Running
from app.storage.engine import StorageError
from app.telemetry.observer import NOBODY
from app.tool.base import Tool, ToolContext, ToolError, ToolResult
from app.tool.builtin.conversation import InvalidTool
from app.tool.truncation import OutputStore
from app.turn.step import Step
from app.turn.tool_calls import INVALID, ToolCalls
from app.turn.turn_context import TurnContext


class EchoParameters(Wire):
    text: str


class Echo(Tool[EchoParameters]):
    id = "echo"
    parameters = EchoParameters

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure
        self.runs = 0

    def description(self) -> str:
        return "Says it again."

    async def execute(self, args: EchoParameters, ctx: ToolContext) -> ToolResult:
        self.runs += 1
        if self._failure:
            raise self._failure
        return ToolResult(title=args.text, output=args.text, metadata={"truncated": False})


class Attempt:
    """One attempt at a step: feed it events, then look at what is stored."""

    def __init__(self, sessions: Sessions, message: AssistantMessage, tool: Echo) -> None:
        services: Any = SimpleNamespace(
            store=sessions.store, summaries=None, tasks=None, outputs=OutputStore(Path("/nowhere")), observer=NOBODY
        )
        nobody: Any = None
        ctx = TurnContext(services, nobody, bare_instance(PLACE.directory), sessions.live.get("ses_1"))
        ctx.session, ctx.title = session(title="T"), nobody
        ctx.start_title = self._began  # type: ignore[method-assign]
        self._sessions = sessions
        self.writer = ctx.writer(message)
        self.starts = 0
        self.calls = ToolCalls(ctx, self.writer, {"echo": tool, INVALID: InvalidTool()}, agent(), model())
        self.step = Step(ctx, self.calls)

    def _began(self) -> None:
        self.starts += 1

    async def of(self, *events: StreamEvent) -> list[Any]:
        for event in events:
            self.step.on(event)
        await self.calls.finish()
        await self.writer.stored()
        parts = (await self._sessions.message(self.writer.message.id)).parts
        return [part for part in parts if not isinstance(part, StepStartPart)]


@pytest.fixture
async def attempt(sessions: Sessions) -> Attempt:
    return await make_attempt(sessions, Echo())


async def make_attempt(sessions: Sessions, tool: Echo) -> Attempt:
    message = assistant("msg_0", finish=None)
    await sessions.put(message)
    assert isinstance(message.info, AssistantMessage)
    return Attempt(sessions, message.info, tool)


async def test_text_and_reasoning_become_parts(attempt: Attempt) -> None:
    thought, said = await attempt.of(
        base.StreamStart(),
        base.ReasoningStart("r"),
        base.ReasoningDelta("r", "h"),
        base.ReasoningDelta("r", "m"),
        base.ReasoningEnd("r", {"acme": {"signature": "s"}}),
        base.TextStart("t"),
        base.TextDelta("t", "yes"),
        base.TextDelta("t", ""),
        base.TextEnd("t"),
        base.Finish("stop", base.Usage(input=1)),
    )
    assert isinstance(thought, ReasoningPart) and isinstance(said, TextPart)
    assert (thought.text, thought.metadata, said.text) == ("hm", {"acme": {"signature": "s"}}, "yes")
    assert attempt.starts == 1


async def test_a_call_is_run_and_its_result_stored(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolInputStart("c", "echo"), base.ToolCall("c", "echo", {"text": "hi"}, {"acme": {"id": 1}}))
    assert isinstance(part.state, Completed)
    assert (part.state.output, part.state.title, part.metadata) == ("hi", "hi", {"acme": {"id": 1}})
    assert attempt.calls.started and not attempt.calls.blocked


async def test_a_call_without_an_announcement_is_run_too(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolCall("c", "echo", {"text": "hi"}))
    assert part.state.status == "completed"


async def test_a_name_in_other_letters_is_repaired(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolInputStart("c", "Echo"), base.ToolCall("c", "Echo", {"text": "hi"}))
    assert (part.tool, part.state.status) == ("echo", "completed")


async def test_an_unknown_tool_is_answered_by_invalid(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolInputStart("c", "dance"), base.ToolCall("c", "dance", {"text": "hi"}))
    assert (part.tool, part.state.status, part.state.input["tool"]) == ("invalid", "completed", "dance")
    assert "echo" in part.state.input["error"] and "invalid" not in part.state.input["error"]


async def test_arguments_that_cannot_be_read_are_answered_by_invalid(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolInputStart("c", "echo"), base.InvalidToolCall("c", "echo", "{", "no end"))
    assert (part.tool, part.state.input["tool"]) == ("invalid", "echo")
    assert "no end" in part.state.output


async def test_arguments_of_the_wrong_shape_are_explained(attempt: Attempt) -> None:
    (part,) = await attempt.of(base.ToolCall("c", "echo", {"words": "hi"}))
    assert isinstance(part.state, Failed)
    assert part.state.error.startswith("Error: The echo tool was called with invalid arguments: text:")


@pytest.mark.parametrize(
    ("failure", "blocks"),
    [
        (ToolError("no"), False),
        (PermissionRejected(), True),
        (PermissionRejectedWithMessage("use tabs"), False),
        (PermissionDenied([]), False),
        (ValueError("odd"), False),
    ],
)
async def test_a_call_that_fails_ends_alone(sessions: Sessions, failure: Exception, blocks: bool) -> None:
    attempt = await make_attempt(sessions, Echo(failure))
    one, two = await attempt.of(base.ToolCall("c", "echo", {"text": "hi"}), base.ToolCall("d", "dance", {}))
    assert isinstance(one.state, Failed)
    assert one.state.error.startswith("Error: ") and str(failure) in one.state.error
    assert two.state.status == "completed"
    assert attempt.calls.blocked is blocks


async def test_the_model_is_offered_every_tool_but_invalid(attempt: Attempt) -> None:
    (spec,) = attempt.calls.specs()
    assert (spec.id, spec.description) == ("echo", "Says it again.")
    assert spec.parameters["required"] == ["text"]


async def test_an_aborted_call_is_left_to_be_finished(sessions: Sessions, attempt: Attempt) -> None:
    attempt.step.on(base.ToolCall("c", "echo", {"text": "hi"}))
    await attempt.calls.abort()
    (part,) = attempt.writer.tools
    assert isinstance(part.state, Running)
    attempt.writer.finish_open_parts()
    assert isinstance(part.state, Failed)


async def test_calls_that_cannot_be_stored_are_not_run(sessions: Sessions) -> None:
    echo = Echo()
    attempt = await make_attempt(sessions, echo)
    sessions.database.full = True
    with pytest.raises(StorageError):
        await attempt.of(*(base.ToolCall(call, "echo", {"text": "hi"}) for call in ("c", "d")))
    assert echo.runs == 0
    sessions.database.full = False
    attempt.writer.finish_open_parts()
    await attempt.writer.stored()
    states = [part.state for part in (await sessions.message(attempt.writer.message.id)).parts if isinstance(part, ToolPart)]
    assert [state.status for state in states] == ["error"] * 2
