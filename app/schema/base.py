"""What every model of the vocabulary shares: snake_case in Python, OpenCode's camelCase (`sessionID`, `modelID`) on the wire."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def wire_name(name: str) -> str:
    """`session_id` → `sessionID`, `status_code` → `statusCode`."""
    head, *rest = name.split("_")
    return head + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class Wire(BaseModel):
    """A value of the API. Unknown keys are dropped, absent optional fields are left out of the JSON."""

    model_config = ConfigDict(
        alias_generator=wire_name, validate_by_name=True, validate_by_alias=True, serialize_by_alias=True, extra="ignore"
    )

    def wire(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def wire_json(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


_LONGEST_ID = 256


def _storable(text: str) -> str:
    if len(text) > _LONGEST_ID or "\0" in text:
        raise ValueError(f"an id has at most {_LONGEST_ID} characters, and none of them is NUL")
    return text


_STORABLE = AfterValidator(_storable)
"""Clients name messages and parts themselves. An id is a key of the database, which cannot hold every text there."""

AnyID = Annotated[str, _STORABLE]
SessionID = Annotated[str, Field(pattern="^ses"), _STORABLE]
MessageID = Annotated[str, Field(pattern="^msg"), _STORABLE]
PermissionID = Annotated[str, Field(pattern="^per")]
QuestionID = Annotated[str, Field(pattern="^que")]
Metadata = dict[str, Any]
