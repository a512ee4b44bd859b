"""What every model of the vocabulary shares: snake_case in Python, OpenCode's camelCase (`sessionID`, `modelID`) on the wire."""

from collections.abc import Collection
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def wire_name(name: str) -> str:
    """`session_id` → `sessionID`, `status_code` → `statusCode`."""
    head, *rest = name.split("_")
    return head + "".join("ID" if word == "id" else word.capitalize() for word in rest)


def describe_absence(schema: JsonSchemaValue, always: Collection[str] = ()) -> None:
    """Describes an object as clients see it: what is None is left out, never null; the properties `always` are in every
    answer."""
    properties: dict[str, JsonSchemaValue] = schema.get("properties", {})
    tags = {name for name, field in properties.items() if "const" in field}
    for field in properties.values():
        _without_null(field)
    if required := {*schema.get("required", ()), *always, *tags}:
        schema["required"] = [name for name in properties if name in required]


def _without_null(field: JsonSchemaValue) -> None:
    shapes = [shape for shape in field.get("anyOf", ()) if shape != {"type": "null"}]
    if len(shapes) == 1:
        del field["anyOf"]
        field.update(shapes[0])
    elif shapes:
        field["anyOf"] = shapes
    if field.get("default", ...) is None:
        del field["default"]


WHEN_USED = ConfigDict(defer_build=True)
"""Validators and serializers are built with the first use: a server starts a tenth sooner, and of models that nobody uses it
keeps the fields only."""


class Wire(BaseModel):
    """A value of the API. Unknown keys are dropped, absent optional fields are left out of the JSON.

    A field with a default that is not None is in every answer, and the API's description says so.
    """

    sent_back: ClassVar[bool] = False
    """Clients send the value back as they got it, so it is described alike in both directions."""

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        allow_inf_nan=False,  # JSON has no such numbers, but a string may name one
        protected_namespaces=(),  # or each name is compared with those of Pydantic's methods, at each start
        **WHEN_USED,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        always = cls._always_there() if cls.sent_back or handler.mode == "serialization" else ()
        describe_absence(handler.resolve_ref_schema(schema), always)
        return schema

    @classmethod
    def _always_there(cls) -> set[str]:
        return {
            field.serialization_alias or name
            for name, field in cls.model_fields.items()
            if field.get_default(call_default_factory=True) is not None
        }

    def wire(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def wire_json(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63), WithJsonSchema({"type": "integer"})]
"""A number in what is stored: a larger one, which a client may send as a string of digits, is not read again."""

_MAX_ID_CHARACTERS = 256


def _storable(text: str) -> str:
    if len(text) > _MAX_ID_CHARACTERS or "\0" in text:
        raise ValueError(f"an id has at most {_MAX_ID_CHARACTERS} characters, and none of them is NUL")
    return text


_STORABLE = AfterValidator(_storable)
"""Clients name messages and parts themselves. An id is a key of the database, which cannot hold every text there."""

AnyID = Annotated[str, _STORABLE]
SessionID = Annotated[str, Field(pattern="^ses"), _STORABLE]
MessageID = Annotated[str, Field(pattern="^msg"), _STORABLE]
PermissionID = Annotated[str, Field(pattern="^per")]
QuestionID = Annotated[str, Field(pattern="^que")]
Metadata = dict[str, Any]
