from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.schema.model import Skill
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult


class SkillParameters(Wire):
    name: Annotated[str, Field(description="Name of the skill, as listed")]


class SkillTool(Tool[SkillParameters]):
    """`skills` are those that the agent may load: each agent has its own SkillTool."""

    id = "skill"
    parameters = SkillParameters

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = {skill.name: skill for skill in skills}

    def description(self) -> str:
        lines = [f"- {skill.name}: {skill.description}" for skill in self._skills.values()]
        return "\n".join([descriptions.load(self.id).rstrip(), "", "Skills:", *(lines or ["(none)"])])

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
