"""The tools that only talk to their turn: todo, question, task, skill, batch, invalid."""

import asyncio
import json
from pathlib import Path

import pytest

from app.permissions.questions import QuestionRejected
from app.permissions.service import PermissionDenied, PermissionRejected
from app.schema.model import Agent, Skill
from app.schema.session import Todo
from app.tools.base import SubagentRequest, ToolContext, ToolError, ToolResult
from app.tools.builtin.batch import BatchParameters, BatchTool
from app.tools.builtin.conversation import (
    InvalidParameters,
    InvalidTool,
    QuestionParameters,
    QuestionTool,
    SkillParameters,
    SkillTool,
    TaskParameters,
    TaskTool,
    TodoReadParameters,
    TodoReadTool,
    TodoWriteParameters,
    TodoWriteTool,
)

TODOS = [
    {"content": "é", "status": "pending", "priority": "high", "id": "1"},
    {"content": "b", "status": "completed", "priority": "low", "id": "2"},
    {"content": "c", "status": "cancelled", "priority": "low", "id": "3"},
]


class TestTodo:
    async def test_write_stores_and_reports(self, ctx: ToolContext, host) -> None:
        result = await TodoWriteTool().execute(TodoWriteParameters.model_validate({"todos": TODOS}), ctx)
        assert [todo.wire() for todo in host.stored_todos] == TODOS
        assert result == ToolResult("2 todos", json.dumps(TODOS, indent=2, ensure_ascii=False), {"todos": TODOS})
        assert [(ask.permission, ask.patterns, ask.always) for ask in host.asks] == [("todowrite", ["*"], ["*"])]

    async def test_write_refused_stores_nothing(self, ctx: ToolContext, host) -> None:
        host.refuse = PermissionDenied([])
        with pytest.raises(PermissionDenied):
            await TodoWriteTool().execute(TodoWriteParameters.model_validate({"todos": TODOS}), ctx)
        assert host.stored_todos == []

    async def test_read(self, ctx: ToolContext, host) -> None:
        host.stored_todos = [Todo.model_validate(TODOS[1])]
        result = await TodoReadTool().execute(TodoReadParameters(), ctx)
        assert (result.title, json.loads(result.output)) == ("0 todos", TODOS[1:2])
        assert host.permissions == ["todoread"]


class TestQuestion:
    @staticmethod
    def ask(*questions: str) -> QuestionParameters:
        option = {"label": "A", "description": "first"}
        return QuestionParameters.model_validate(
            {"questions": [{"question": text, "header": "H", "options": [option], "multiple": True} for text in questions]}
        )

    async def test_answers(self, ctx: ToolContext, host) -> None:
        host.answers = [["A", "own words"], []]
        result = await QuestionTool().execute(self.ask("Which?", "Why?"), ctx)
        assert result.title == "Asked 2 questions"
        assert '"Which?"="A, own words", "Why?"="Unanswered"' in result.output
        assert result.metadata == {"answers": [["A", "own words"], []]}
        assert host.questions[0][0].wire() == {
            "question": "Which?",
            "header": "H",
            "options": [{"label": "A", "description": "first"}],
            "multiple": True,
        }
        assert host.asks == []

    async def test_fewer_answers_than_questions(self, ctx: ToolContext, host) -> None:
        host.answers = []
        result = await QuestionTool().execute(self.ask("Which?"), ctx)
        assert result.title == "Asked 1 question"
        assert '"Which?"="Unanswered"' in result.output

    async def test_dismissed(self, ctx: ToolContext, host) -> None:
        host.answers = QuestionRejected()
        with pytest.raises(QuestionRejected):
            await QuestionTool().execute(self.ask("Which?"), ctx)


class TestTask:
    ARGUMENTS = {"description": "Look around", "prompt": "Look", "subagent_type": "explore"}

    async def test_asks_and_runs_the_subagent(self, ctx: ToolContext, host) -> None:
        host.subagent = ToolResult("Look around", "found", {"sessionId": "ses_child"})
        arguments = TaskParameters.model_validate(self.ARGUMENTS | {"session_id": "ses_child", "command": "look"})
        assert await TaskTool([]).execute(arguments, ctx) == host.subagent
        assert host.subagents == [SubagentRequest("Look around", "Look", "explore", "ses_child", "look")]
        assert [(ask.permission, ask.patterns, ask.always, ask.metadata) for ask in host.asks] == [
            ("task", ["explore"], ["*"], {"description": "Look around", "subagent_type": "explore"})
        ]

    async def test_refused(self, ctx: ToolContext, host) -> None:
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await TaskTool([]).execute(TaskParameters.model_validate(self.ARGUMENTS), ctx)
        assert host.subagents == []

    async def test_does_not_ask_when_the_user_named_the_subagent(self, make_ctx, host) -> None:
        await TaskTool([]).execute(TaskParameters.model_validate(self.ARGUMENTS), make_ctx(bypass_agent_check=True))
        assert host.asks == []
        assert len(host.subagents) == 1

    def test_the_description_names_the_subagents(self) -> None:
        agents = [
            Agent(name="explore", description="Looks around", mode="subagent", permission=[]),
            Agent(name="own", mode="all", permission=[]),
        ]
        description = TaskTool(agents).description()
        assert "- explore: Looks around\n- own: " in description


class TestSkill:
    @pytest.fixture
    def skill(self, project: Path) -> Skill:
        location = project / "skills/pdf/SKILL.md"
        return Skill(name="pdf", description="Works on PDF", location=str(location), content="# Do this\n\n--- that")

    async def test_loads_the_body(self, ctx: ToolContext, host, skill: Skill) -> None:
        result = await SkillTool([skill]).execute(SkillParameters(name="pdf"), ctx)
        folder = str(Path(skill.location).parent)
        assert result.title == "Loaded skill: pdf"
        assert result.output.endswith("\n\n# Do this\n\n--- that")
        assert folder in result.output
        assert "description:" not in result.output
        assert result.metadata == {"name": "pdf", "dir": folder}
        assert [(ask.permission, ask.patterns, ask.always) for ask in host.asks] == [("skill", ["pdf"], ["pdf"])]

    async def test_an_unknown_name(self, ctx: ToolContext, host, skill: Skill) -> None:
        with pytest.raises(ToolError, match="pdf"):
            await SkillTool([skill]).execute(SkillParameters(name="other"), ctx)
        assert host.asks == []

    def test_the_description_lists_the_skills(self, skill: Skill) -> None:
        assert "- pdf: Works on PDF" in SkillTool([skill]).description()
        assert "(none)" in SkillTool([]).description()


def batch_of(*tools: str) -> BatchParameters:
    return BatchParameters.model_validate(
        {"tool_calls": [{"tool": tool, "parameters": {"n": n}} for n, tool in enumerate(tools)]}
    )


class TestBatch:
    async def test_each_call_is_the_turns_own(self, ctx: ToolContext, host) -> None:
        host.calls["grep"] = ToolError("bad pattern")
        result = await BatchTool().execute(batch_of("read", "grep", "glob"), ctx)
        assert host.called == [("read", {"n": 0}), ("grep", {"n": 1}), ("glob", {"n": 2})]
        assert result.title == "Batch execution (2/3 successful)"
        assert result.metadata == {
            "totalCalls": 3,
            "successful": 2,
            "failed": 1,
            "tools": ["read", "grep", "glob"],
            "details": [
                {"tool": "read", "success": True},
                {"tool": "grep", "success": False},
                {"tool": "glob", "success": True},
            ],
        }
        assert "- grep: bad pattern" in result.output

    async def test_calls_run_at_the_same_time(self, make_ctx, host) -> None:
        together = asyncio.Barrier(3)

        class Meeting(type(host)):
            async def call_tool(self, tool: str, arguments: dict[str, object]) -> ToolResult:
                await together.wait()
                return ToolResult(tool, "met")

        async with asyncio.timeout(60):
            result = await BatchTool().execute(batch_of("a", "b", "c"), make_ctx(host=Meeting()))
        assert result.metadata["successful"] == 3

    async def test_calls_beyond_the_limit_fail_and_are_not_made(self, ctx: ToolContext, host) -> None:
        result = await BatchTool().execute(batch_of(*["read"] * 27), ctx)
        assert len(host.called) == 25
        assert (result.metadata["successful"], result.metadata["failed"]) == (25, 2)

    async def test_no_batch_in_a_batch(self, ctx: ToolContext, host) -> None:
        result = await BatchTool().execute(batch_of("batch", "read"), ctx)
        assert host.called == [("read", {"n": 1})]
        assert result.metadata["failed"] == 1

    async def test_a_rejection_reaches_the_turn_after_the_other_calls_are_done(self, ctx: ToolContext, host) -> None:
        host.calls["bash"] = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await BatchTool().execute(batch_of("bash", "read"), ctx)
        assert [tool for tool, _ in host.called] == ["bash", "read"]

    async def test_abort_waits_until_every_call_has_cleaned_up(self, make_ctx, host) -> None:
        running = asyncio.Barrier(3)
        cleaned: list[str] = []

        class Slow(type(host)):
            async def call_tool(self, tool: str, arguments: dict[str, object]) -> ToolResult:
                await running.wait()
                try:
                    return await asyncio.Future()
                finally:
                    for _ in range(int(tool)):
                        await asyncio.sleep(0)
                    cleaned.append(tool)

        task = asyncio.create_task(BatchTool().execute(batch_of("1", "20"), make_ctx(host=Slow())))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == ["1", "20"]

    def test_at_least_one_call(self) -> None:
        with pytest.raises(ValueError, match="tool_calls"):
            batch_of()


async def test_invalid(ctx: ToolContext) -> None:
    result = await InvalidTool().execute(InvalidParameters(tool="read", error="filePath is missing"), ctx)
    assert result.title == "Invalid Tool"
    assert "read" in result.output
    assert "filePath is missing" in result.output
