"""What every model of the API shares: snake_case in Python, the API's camelCase on the wire. Both are taken."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Fields that a newer server adds are kept in `model_extra`. Built when it is first used: a program uses few of them."""

    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=True, serialize_by_alias=True, extra="allow", defer_build=True
    )
