"""What a prompt is answered with."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from opensession_client.errors import PromptAborted, PromptFailed
from opensession_client.models import (
    AssistantMessage,
    MessageAbortedError,
    MessageWithParts,
    Part,
    PartInput,
    TextPart,
    TextPartInput,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """`messages`: those of the assistant since the prompt, one for each request to the model, oldest first."""

    messages: list[MessageWithParts]

    @property
    def info(self) -> AssistantMessage:
        """Of the last message: tokens, cost, model, finish reason."""
        info = self.messages[-1].info
        assert isinstance(info, AssistantMessage)
        return info

    @property
    def text(self) -> str:
        """Of the last message."""
        return "\n".join(part.text for part in self.messages[-1].parts if isinstance(part, TextPart) and not part.synthetic)

    @property
    def parts(self) -> list[Part]:
        """Of all messages: texts, reasoning, tool calls, patches, in their order."""
        return [part for message in self.messages for part in message.parts]

    def or_raise(self) -> "Answer":
        """Raises PromptFailed, PromptAborted."""
        error = self.info.error
        if error is None:
            return self
        raise (PromptAborted if isinstance(error, MessageAbortedError) else PromptFailed)(error, self)


def new_message_id() -> str:
    """A prompt with an id of its own can be sent again when nobody knows whether it arrived."""
    return f"msg_{uuid4().hex}"


def input_parts(prompt: str | Sequence[PartInput]) -> list[PartInput]:
    return [TextPartInput(text=prompt)] if isinstance(prompt, str) else list(prompt)
