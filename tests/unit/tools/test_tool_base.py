"""What a tool tells of its arguments: by a Pydantic model, or by a JSON schema from elsewhere."""

import inspect
import json
import re
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.schema.permission import EDITING_TOOLS
from app.tools import toolbox
from app.tools.base import ExternalTool, Tool, ToolContext, ToolResult, load_description
from app.tools.builtin.conversation import InvalidTool
from app.tools.builtin.edit import TextEdit
from app.tools.external import MAX_KEY_LENGTH, tool_key

BUILTIN = [found for name, found in vars(toolbox).items() if name.endswith("Tool") and name != "Tool"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(ExternalTool):
    async def execute(self, args: object, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="", output="sunny")


def test_every_tool_that_asks_for_edits_is_known_to_edit_files() -> None:
    """A rule that denies edits hides it, and a revert knows its files."""
    asking = {tool.id for tool in BUILTIN if "FileEditor" in inspect.getsource(tool)}
    assert asking == {tool.id for tool in BUILTIN if tool.edits_files} == EDITING_TOOLS - {"patch"}


def arguments(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    return " ".join(name if name in required else f"{name}?" for name in schema.get("properties", {}))


ARGUMENTS = {
    "apply_patch": "patchText",
    "bash": "command timeout? workdir? description",
    "batch": "tool_calls",
    "invalid": "tool error",
    "question": "questions",
    "skill": "name",
    "task": "description prompt subagent_type session_id? command?",
    "todoread": "",
    "todowrite": "todos",
    "edit": "oldString newString replaceAll? filePath",
    "multiedit": "filePath edits",
    "write": "content filePath",
    "glob": "pattern path?",
    "grep": "pattern path? include?",
    "list": "path? ignore?",
    "lsp": "operation filePath line character",
    "read": "filePath offset? limit?",
    "webfetch": "url format? timeout?",
}


REFUSED = re.compile(r'"(?:[$]ref|[$]defs|exclusive\w+)"|"title": "|old_string')
"""What Gemini and other providers refuse in a schema, and what tells a model nothing."""


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.id)
def test_a_tool_is_described_with_its_arguments_in_opencodes_names(tool: type[Tool[Any]]) -> None:
    schema = tool.__new__(tool).schema
    assert load_description(tool.id)
    assert arguments(schema) == ARGUMENTS[tool.id]
    assert not REFUSED.findall(json.dumps(schema))
    assert all(field.get("description") for field in schema.get("properties", {}).values())


def test_a_tools_schema_is_its_models() -> None:
    assert set(InvalidTool().schema["properties"]) == {"tool", "error"}
    assert arguments(TextEdit.model_json_schema(by_alias=True)) == "oldString newString replaceAll?", "each of many edits"


class Tree(BaseModel):
    below: list["Tree"]


class Planter(Tool[Tree]):
    parameters = Tree

    async def execute(self, args: Tree, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="", output="planted")


def test_what_holds_its_own_kind_is_described_once() -> None:
    below = {"type": "array", "items": {}}
    assert Planter().schema == {"type": "object", "properties": {"below": below}, "required": ["below"]}


def test_a_foreign_tool_hands_its_json_schema_on_and_takes_any_object() -> None:
    tool = Weather("weather", "Tells the weather", SCHEMA)
    assert (tool.id, tool.description, tool.schema) == ("weather", "Tells the weather", SCHEMA)
    assert Weather.parameters.model_validate({"city": 1, "more": [None]}).root == {"city": 1, "more": [None]}
    with pytest.raises(ValidationError):
        Weather.parameters.model_validate(["no object"])


def test_the_key_of_a_servers_tool_has_only_characters_that_providers_take_and_a_bounded_length() -> None:
    assert tool_key("time", "get_current_time") == "time_get_current_time"
    assert (tool_key("my server", "a.b/c"), tool_key("größe", "x-y")) == ("my_server_a_b_c", "gr__e_x-y")
    keys = {tool_key("server", "long" * 30 + end) for end in "ab"}
    assert len(keys) == 2 and {len(key) for key in keys} == {MAX_KEY_LENGTH}, "long ones are cut and stay apart"
