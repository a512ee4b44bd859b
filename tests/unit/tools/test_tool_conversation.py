"""What batches do with their calls, and what agents are told of subagents and skills."""

import asyncio
from pathlib import Path

import pytest
from tool_host import FakeHost, MakeContext, run

from app.permissions.service import PermissionRejected
from app.schema.model import Agent, Skill
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin import conversation
from app.tools.builtin.conversation import BatchTool


def skill(project: Path) -> conversation.SkillTool:
    location = project / "skills/pdf/SKILL.md"
    found = Skill(name="pdf", description="Works on PDF", location=str(location), content="# Do this\n\n--- that")
    return conversation.SkillTool([found])


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
