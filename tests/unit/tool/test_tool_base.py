"""What a tool tells of its arguments: by a Pydantic model, or by a JSON schema from elsewhere."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.schema.permission import EDITING_TOOLS
from app.tool import builtin
from app.tool.base import ExternalTool, ToolContext, ToolResult
from app.tool.builtin.invalid import InvalidTool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(ExternalTool):
    async def execute(self, args: object, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="", output="sunny")


def test_every_tool_that_asks_for_edits_is_known_to_edit_files() -> None:
    """A rule that denies edits hides it, and a revert knows its files."""
    modules = {file.stem: file.read_text() for path in builtin.__path__ for file in Path(path).glob("*.py")}
    asking = {name for name, source in modules.items() if re.search(r'FileEditor|ToolPermission\(\s*"edit"', source)}
    assert asking == EDITING_TOOLS - {"patch"}


def test_a_tools_schema_is_its_models() -> None:
    assert set(InvalidTool().schema()["properties"]) == {"tool", "error"}


def test_a_foreign_tool_hands_its_json_schema_on_unchanged() -> None:
    tool = Weather("weather", "Tells the weather", SCHEMA)
    assert (tool.id, tool.description(), tool.schema()) == ("weather", "Tells the weather", SCHEMA)


def test_a_foreign_tool_takes_any_object() -> None:
    assert Weather.parameters.model_validate({"city": 1, "more": [None]}).root == {"city": 1, "more": [None]}
    with pytest.raises(ValidationError):
        Weather.parameters.model_validate(["no object"])
