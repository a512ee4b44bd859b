"""The tools that only talk to their turn: todo, question, task, skill, batch, invalid."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost, MakeContext, run

from app.permissions.questions import QuestionRejected
from app.permissions.service import PermissionDenied, PermissionRejected
from app.schema.model import Agent, Skill
from app.schema.session import Todo
from app.tools.base import TaskParameters, ToolContext, ToolError, ToolResult
from app.tools.builtin import conversation
from app.tools.builtin.conversation import BatchTool

TODOS = [
    {"content": "é", "status": "pending", "priority": "high", "id": "1"},
    {"content": "b", "status": "completed", "priority": "low", "id": "2"},
    {"content": "c", "status": "cancelled", "priority": "low", "id": "3"},
]
TASK = {"description": "Look around", "prompt": "Look", "subagent_type": "explore"}
OPTION = {"label": "A", "description": "first"}


def questions(*texts: str) -> list[dict[str, Any]]:
    return [{"question": text, "header": "H", "options": [OPTION], "multiple": True} for text in texts]


def skill(project: Path) -> conversation.SkillTool:
    location = project / "skills/pdf/SKILL.md"
    found = Skill(name="pdf", description="Works on PDF", location=str(location), content="# Do this\n\n--- that")
    return conversation.SkillTool([found])


async def test_todos_are_stored_and_read_back(ctx: ToolContext, host: FakeHost) -> None:
    result = await run(conversation.TodoWriteTool(), ctx, todos=TODOS)
    assert [todo.wire() for todo in host.stored_todos] == TODOS
    assert result == ToolResult("2 todos", json.dumps(TODOS, indent=2, ensure_ascii=False), {"todos": TODOS})
    assert [(ask.permission, ask.patterns, ask.always) for ask in host.asks] == [("todowrite", ["*"], ["*"])]
    host.stored_todos = [Todo.model_validate(TODOS[1])]
    result = await run(conversation.TodoReadTool(), ctx)
    assert (result.title, json.loads(result.output)) == ("0 todos", TODOS[1:2])
    assert host.permissions == ["todowrite", "todoread"]


async def test_what_is_refused_is_not_done(ctx: ToolContext, host: FakeHost) -> None:
    host.refuse = PermissionDenied([])
    for tool, arguments in ((conversation.TodoWriteTool(), {"todos": TODOS}), (conversation.TaskTool([]), TASK)):
        with pytest.raises(PermissionDenied):
            await run(tool, ctx, **arguments)
    assert host.stored_todos == [] and host.subagents == []


async def test_questions_are_asked_and_answered(ctx: ToolContext, host: FakeHost) -> None:
    host.answers = [["A", "own words"], []]
    asked = questions("Which?", "Why?")
    result = await run(conversation.QuestionTool(), ctx, questions=asked)
    assert result.title == "Asked 2 questions"
    assert '"Which?"="A, own words", "Why?"="Unanswered"' in result.output
    assert result.metadata == {"answers": [["A", "own words"], []]}
    assert [question.wire() for question in host.questions[0]] == asked and host.asks == []
    host.answers = []
    result = await run(conversation.QuestionTool(), ctx, questions=questions("Which?"))
    assert result.title == "Asked 1 question" and '"Which?"="Unanswered"' in result.output
    host.answers = QuestionRejected()
    with pytest.raises(QuestionRejected):
        await run(conversation.QuestionTool(), ctx, questions=asked)
    with pytest.raises(ToolError, match="at least one question"):
        await run(conversation.QuestionTool(), ctx, questions=[])


async def test_a_task_is_asked_for_and_run_by_the_subagent(ctx: ToolContext, host: FakeHost, make_ctx: MakeContext) -> None:
    host.subagent = ToolResult("Look around", "found", {"sessionId": "ses_child"})
    arguments = TASK | {"session_id": "ses_child", "command": "look"}
    assert await run(conversation.TaskTool([]), ctx, **arguments) == host.subagent
    assert host.subagents == [TaskParameters.model_validate(arguments)]
    assert [(ask.permission, ask.patterns, ask.always, ask.metadata) for ask in host.asks] == [
        ("task", ["explore"], ["*"], {"description": "Look around", "subagent_type": "explore"})
    ]
    await run(conversation.TaskTool([]), make_ctx(bypass_agent_check=True), **TASK)
    assert (len(host.asks), len(host.subagents)) == (1, 2), "it is not asked where the user named the subagent"


async def test_a_skill_s_text_is_loaded(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    with pytest.raises(ToolError, match="pdf"):
        await run(skill(project), ctx, name="other")
    assert host.asks == []
    result = await run(skill(project), ctx, name="pdf")
    folder = str(project / "skills/pdf")
    assert result.title == "Loaded skill: pdf"
    assert result.output.endswith("\n\n# Do this\n\n--- that")
    assert folder in result.output and "description:" not in result.output
    assert result.metadata == {"name": "pdf", "dir": folder}
    assert [(ask.permission, ask.patterns, ask.always) for ask in host.asks] == [("skill", ["pdf"], ["pdf"])]


def test_descriptions_name_the_subagents_and_the_skills(project: Path) -> None:
    explore = Agent(name="explore", description="Looks around", mode="subagent", permission=[])
    agents = [explore, Agent(name="own", mode="all", permission=[])]
    assert "- explore: Looks around\n- own: " in conversation.TaskTool(agents).description
    assert "- pdf: Works on PDF" in skill(project).description
    assert "(none)" in conversation.SkillTool([]).description


async def batch(ctx: ToolContext, *tools: str) -> ToolResult:
    return await run(BatchTool(), ctx, tool_calls=[{"tool": tool, "parameters": {"n": n}} for n, tool in enumerate(tools)])


class TestBatch:
    async def test_each_call_is_the_turns_own(self, ctx: ToolContext, host: FakeHost) -> None:
        host.calls["grep"] = ToolError("bad pattern")
        result = await batch(ctx, "read", "grep", "glob")
        assert host.called == [("read", {"n": 0}), ("grep", {"n": 1}), ("glob", {"n": 2})]
        assert result.title == "Batch execution (2/3 successful)"
        details = [{"tool": tool, "success": tool != "grep"} for tool in ("read", "grep", "glob")]
        counts = {"totalCalls": 3, "successful": 2, "failed": 1}
        assert result.metadata == {**counts, "tools": ["read", "grep", "glob"], "details": details}
        assert "- grep: bad pattern" in result.output
        result = await batch(ctx, "read", "glob")
        assert result.output == "All 2 calls succeeded. Each call's output stands with that call."

    async def test_calls_beyond_the_limit_and_batches_fail_and_are_not_made(self, ctx: ToolContext, host: FakeHost) -> None:
        result = await batch(ctx, *["read"] * 27)
        assert len(host.called) == 25
        assert (result.metadata["successful"], result.metadata["failed"]) == (25, 2)
        result = await batch(ctx, "batch", "read")
        assert host.called[25:] == [("read", {"n": 1})]
        assert result.metadata["failed"] == 1
        with pytest.raises(ValueError, match="tool_calls"):
            await batch(ctx)

    async def test_a_rejection_reaches_the_turn_after_the_other_calls_are_done(self, ctx: ToolContext, host: FakeHost) -> None:
        host.calls["bash"] = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await batch(ctx, "bash", "read")
        assert [tool for tool, _ in host.called] == ["bash", "read"]

    async def test_calls_run_at_the_same_time_and_an_abort_waits_until_each_has_cleaned_up(self, make_ctx: MakeContext) -> None:
        running = asyncio.Barrier(3)
        cleaned: list[str] = []

        class Slow(FakeHost):
            async def call_tool(self, tool: str, arguments: dict[str, object]) -> ToolResult:
                await running.wait()
                try:
                    return await asyncio.Future()
                finally:
                    for _ in range(int(tool)):
                        await asyncio.sleep(0)
                    cleaned.append(tool)

        task = asyncio.create_task(batch(make_ctx(host=Slow()), "1", "20"))
        async with asyncio.timeout(60):
            await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == ["1", "20"]
