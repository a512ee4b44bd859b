"""What a tool tells of its arguments: by a Pydantic model, or by a JSON schema from elsewhere."""

import pytest
from pydantic import ValidationError

from app.tool.base import ExternalTool, ToolContext, ToolResult
from app.tool.builtin.invalid import InvalidTool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(ExternalTool):
    async def execute(self, args: object, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="", output="sunny")


def test_a_tools_schema_is_its_models() -> None:
    assert set(InvalidTool().schema()["properties"]) == {"tool", "error"}


def test_a_foreign_tool_hands_its_json_schema_on_unchanged() -> None:
    tool = Weather("weather", "Tells the weather", SCHEMA)
    assert (tool.id, tool.description(), tool.schema()) == ("weather", "Tells the weather", SCHEMA)


def test_a_foreign_tool_takes_any_object() -> None:
    assert Weather.parameters.model_validate({"city": 1, "more": [None]}).root == {"city": 1, "more": [None]}
    with pytest.raises(ValidationError):
        Weather.parameters.model_validate(["no object"])
