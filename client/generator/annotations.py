"""Schemas of openapi.yaml as Python annotations, and names of the API as Python names."""

import keyword
import re
import textwrap
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

ANYTHING = "Any"
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_ANNOTATION_NAMES = {"str", "int", "float", "bool", "list", "dict"}
"""A field of such a name would hide the type from the annotations below it."""

UNIONS = {
    "EventServerConnected": "Event",
    "UserMessage": "Message",
    "ProviderAuthError": "MessageError",
    "TextPart": "Part",
    "TextPartInput": "PartInput",
    "Idle": "SessionStatus",
    "MCPStatusConnected": "McpStatus",
    "OAuth": "Credentials",
    "Pending": "ToolState",
}
"""Names of tagged unions, by their first member. Others are written where they occur."""


def snake(name: str) -> str:
    """`sessionID` → `session_id`, `mcp.auth.start` → `mcp_auth_start`."""
    return _WORD_STARTS.sub("_", name).strip("_").lower()


def python_name(name: str) -> str:
    """With `_` behind it where Python or pydantic uses the name itself."""
    found = snake(name)
    taken = keyword.iskeyword(found) or found in _ANNOTATION_NAMES or hasattr(BaseModel, found)
    return f"{found}_" if taken else found


def annotation(schema: Schema, prefix: str = "") -> str:
    """`prefix` stands before the names of models. A schema that has no counterpart is `Any`."""
    if "$ref" in schema:
        return prefix + str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "oneOf" in schema or "anyOf" in schema:
        return _union(schema, prefix)
    return _by_type(schema, prefix)


def _union(schema: Schema, prefix: str) -> str:
    members = list(dict.fromkeys(annotation(member, prefix) for member in schema.get("oneOf") or schema["anyOf"]))
    if ANYTHING in members:
        return ANYTHING
    if "discriminator" not in schema:
        return " | ".join(members)
    name = UNIONS.get(members[0].removeprefix(prefix))
    return f"{prefix}{name}" if name else tagged(schema, prefix)


def tagged(schema: Schema, prefix: str = "") -> str:
    members = " | ".join(annotation(member, prefix) for member in schema["oneOf"])
    return f'Annotated[{members}, Field(discriminator="{python_name(schema["discriminator"]["propertyName"])}")]'


def _by_type(schema: Schema, prefix: str) -> str:
    match schema.get("type"):
        case "array":
            return f"list[{annotation(schema.get('items', {}), prefix)}]"
        case "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {annotation(values, prefix) if isinstance(values, dict) else ANYTHING}]"
        case str() as scalar:
            return _SCALARS.get(scalar, ANYTHING)
        case _:
            return ANYTHING


def docstring(*paragraphs: str) -> str:
    """Indented, at most as long a line as the formatter has it."""
    wrapped = [textwrap.fill(" ".join(text.split()), 122, break_on_hyphens=False) for text in paragraphs if text]
    text = "\n\n".join(wrapped).replace("\\", "\\\\").replace('"', "'")
    closed = f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'
    return textwrap.indent(closed, "    ")
