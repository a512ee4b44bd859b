"""The to-do list, questions to the user, tasks for subagents, skills, batches of calls, and what answers an invalid call."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from app.permissions.questions import QuestionRejected
from app.permissions.service import PermissionRejected
from app.schema.base import Wire
from app.schema.model import Agent, Skill
from app.schema.permission import Answer, QuestionInfo
from app.schema.session import Todo
from app.tools.base import TaskParameters, Tool, ToolContext, ToolError, ToolPermission, ToolResult, load_description

MAX_CALLS = 25
"""How many calls of a batch are run; the others fail."""


class TodoWriteParameters(Wire):
    todos: Annotated[list[Todo], Field(description="The whole list as it is to be from now on")]


class TodoReadParameters(Wire):
    pass


class TodoWriteTool(Tool[TodoWriteParameters]):
    id = "todowrite"
    parameters = TodoWriteParameters

    async def execute(self, args: TodoWriteParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        await ctx.host.set_todos(args.todos)
        return _report(args.todos)


class TodoReadTool(Tool[TodoReadParameters]):
    id = "todoread"
    parameters = TodoReadParameters

    async def execute(self, args: TodoReadParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        return _report(await ctx.host.todos())


def _report(todos: list[Todo]) -> ToolResult:
    listed = [todo.wire() for todo in todos]
    unfinished = sum(todo.status != "completed" for todo in todos)
    return ToolResult(
        title=f"{unfinished} todos", output=json.dumps(listed, indent=2, ensure_ascii=False), metadata={"todos": listed}
    )


class Option(Wire):
    label: Annotated[str, Field(description="What the user picks, one to five words")]
    description: Annotated[str, Field(description="What picking it means")]


class Question(Wire):
    question: Annotated[str, Field(description="The whole question")]
    header: Annotated[str, Field(description="The question in very few words, as a heading")]
    options: Annotated[list[Option], Field(description="The answers to choose from")]
    multiple: Annotated[bool | None, Field(description="Whether more than one option may be picked")] = None


class QuestionParameters(Wire):
    questions: Annotated[list[Question], Field(description="What to ask, one entry a question")]


class QuestionTool(Tool[QuestionParameters]):
    id = "question"
    parameters = QuestionParameters

    async def execute(self, args: QuestionParameters, ctx: ToolContext) -> ToolResult:
        if not args.questions:
            raise ToolError("questions must hold at least one question")
        answers = await ctx.host.ask_questions([QuestionInfo.model_validate(question.wire()) for question in args.questions])
        count = len(args.questions)
        return ToolResult(
            title=f"Asked {count} question{'' if count == 1 else 's'}",
            output=_render(args.questions, answers),
            metadata={"answers": answers},
        )


def _render(questions: list[Question], answers: list[Answer]) -> str:
    """A client may send fewer answers than questions."""
    padded = answers + [[]] * (len(questions) - len(answers))
    pairs = (
        f'"{question.question}"="{", ".join(answer) or "Unanswered"}"'
        for question, answer in zip(questions, padded, strict=False)
    )
    return f"The user has answered: {', '.join(pairs)}. Go on with these answers in mind."


class TaskTool(Tool[TaskParameters]):
    """`subagents` are those that the agent may use: each agent has its own TaskTool."""

    id = "task"
    parameters = TaskParameters

    def __init__(self, subagents: Sequence[Agent]) -> None:
        lines = [f"- {each.name}: {each.description or 'no description; use it when the user asks for it'}" for each in subagents]
        self.description = "\n".join([load_description(self.id), "", "Subagents:", *(lines or ["(none)"])])

    async def execute(self, args: TaskParameters, ctx: ToolContext) -> ToolResult:
        if not ctx.bypass_agent_check:
            about = {"description": args.description, "subagent_type": args.subagent_type}
            await ctx.host.require_permission(ToolPermission(self.id, [args.subagent_type], ["*"], about))
        return await ctx.host.run_subagent(args)


class SkillParameters(Wire):
    name: Annotated[str, Field(description="Name of the skill, as listed")]


class SkillTool(Tool[SkillParameters]):
    """`skills` are those that the agent may load: each agent has its own SkillTool."""

    id = "skill"
    parameters = SkillParameters

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = {skill.name: skill for skill in skills}
        lines = [f"- {skill.name}: {skill.description}" for skill in self._skills.values()]
        self.description = "\n".join([load_description(self.id), "", "Skills:", *(lines or ["(none)"])])

    async def execute(self, args: SkillParameters, ctx: ToolContext) -> ToolResult:
        skill = self._skills.get(args.name)
        if skill is None:
            known = ", ".join(self._skills) or "none"
            raise ToolError(f'There is no skill named "{args.name}". Skills that can be loaded: {known}')
        await ctx.host.require_permission(ToolPermission(self.id, [skill.name], [skill.name]))
        folder = str(Path(skill.location).parent)
        return ToolResult(
            title=f"Loaded skill: {skill.name}",
            output=f"# Skill: {skill.name}\n\nIts files are in {folder}\n\n{skill.content}",
            metadata={"name": skill.name, "dir": folder},
        )


class BatchCall(Wire):
    tool: Annotated[str, Field(description="Name of the tool")]
    parameters: Annotated[dict[str, Any], Field(description="Its arguments")]


class BatchParameters(Wire):
    tool_calls: Annotated[
        list[BatchCall],
        Field(alias="tool_calls", min_length=1, description=f"The calls, at most {MAX_CALLS}; their order means nothing"),
    ]


class BatchTool(Tool[BatchParameters]):
    """Each call is stored, needs permission and is truncated like a direct call of the tool."""

    id = "batch"
    parameters = BatchParameters

    async def execute(self, args: BatchParameters, ctx: ToolContext) -> ToolResult:
        accepted, surplus = args.tool_calls[:MAX_CALLS], args.tool_calls[MAX_CALLS:]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._call(call, ctx)) for call in accepted]
        outcomes = [task.result() for task in tasks]
        outcomes += [ToolError(f"A batch takes at most {MAX_CALLS} calls") for _ in surplus]
        for outcome in outcomes:
            if isinstance(outcome, PermissionRejected | QuestionRejected):
                raise outcome  # the user's rejection of a call ends the whole batch
        return _report_of_batch([call.tool for call in args.tool_calls], outcomes)

    async def _call(self, call: BatchCall, ctx: ToolContext) -> ToolResult | Exception:
        if call.tool == self.id:
            return ToolError("A batch cannot stand inside a batch")
        try:
            return await ctx.host.call_tool(call.tool, call.parameters)
        except Exception as error:  # noqa: BLE001  a failed call is reported beside the results of the others
            return error


def _report_of_batch(tools: Sequence[str], outcomes: Sequence[ToolResult | Exception]) -> ToolResult:
    results = [outcome for outcome in outcomes if isinstance(outcome, ToolResult)]
    failures = [(tool, error) for tool, error in zip(tools, outcomes, strict=True) if isinstance(error, Exception)]
    total, successful = len(outcomes), len(results)
    output = f"All {successful} calls succeeded. Each call's output stands with that call."
    if failures:
        lines = (f"- {tool}: {str(error) or type(error).__name__}" for tool, error in failures)
        output = "\n".join([f"{successful} of {total} calls succeeded, {len(failures)} failed:", *lines])
    return ToolResult(
        title=f"Batch execution ({successful}/{total} successful)",
        output=output,
        attachments=[file for result in results for file in result.attachments],
        metadata={
            "totalCalls": total,
            "successful": successful,
            "failed": len(failures),
            "tools": list(tools),
            "details": [
                {"tool": tool, "success": isinstance(outcome, ToolResult)} for tool, outcome in zip(tools, outcomes, strict=True)
            ],
        },
    )


class InvalidParameters(Wire):
    tool: Annotated[str, Field(description="The tool that was called")]
    error: Annotated[str, Field(description="What was wrong with the call")]


class InvalidTool(Tool[InvalidParameters]):
    """Stands in for a call that no tool can execute, so that the model reads the error."""

    id = "invalid"
    parameters = InvalidParameters

    async def execute(self, args: InvalidParameters, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="Invalid Tool", output=f"The arguments of the call to {args.tool} are invalid: {args.error}")
