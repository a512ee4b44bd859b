"""What one part of a prompt becomes: itself, and for files and agents the text that tells the model of them."""

from collections.abc import Sequence
from typing import assert_never

from app.intake.attached_file import FileReader
from app.permission.rules import evaluate
from app.schema.message import UserMessage
from app.schema.part import (
    AgentPart,
    AgentPartInput,
    FilePartInput,
    Part,
    PartInput,
    SubtaskPart,
    SubtaskPartInput,
    TextPart,
    TextPartInput,
)
from app.util import ids
from app.workspace.instance import Instance


class Resolver:
    def __init__(self, files: FileReader) -> None:
        self._files = files

    async def resolve(self, instance: Instance, message: UserMessage, part: PartInput) -> Sequence[Part]:
        identity = {"session_id": message.session_id, "message_id": message.id}
        content = part.model_dump(exclude={"id"})
        part_id = part.id or ids.ascending("part")
        match part:
            case TextPartInput():
                return [TextPart(id=part_id, **identity, **content)]
            case SubtaskPartInput():
                return [SubtaskPart(id=part_id, **identity, **content)]
            case AgentPartInput():
                return [AgentPart(id=part_id, **identity, **content), _mention(instance, message, part)]
            case FilePartInput():
                return await self._files.read(instance, message, part, part_id)
            case _:
                assert_never(part)


def _mention(instance: Instance, message: UserMessage, part: AgentPartInput) -> TextPart:
    """Naming an agent asks the model to give it the task."""
    caller = instance.agents[message.agent]
    refused = evaluate("task", part.name, caller.permission).action == "deny"
    hint = " The user named it, so you may use it although your rules say otherwise." if refused else ""
    text = f" Use the message above to write a prompt for the subagent {part.name} and call the task tool with it.{hint}"
    return TextPart(id=ids.ascending("part"), session_id=message.session_id, message_id=message.id, text=text, synthetic=True)
