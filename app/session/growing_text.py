"""The text of a streaming part, collected in pieces: `part.text += …` would copy the whole text with every delta."""

from app.schema.part import ReasoningPart, TextPart


class GrowingText:
    """`append` takes constant time. `part.text` may lag behind until `joined` updates it."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.part = part
        self.size = len(part.text)
        """In characters."""
        self.write_after = 0.0
        """By the event loop's clock: the store does not write the part's row before this time."""
        self._pieces: list[str] = []

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    def joined(self) -> TextPart | ReasoningPart:
        if self._pieces:
            self.part.text = "".join((self.part.text, *self._pieces))
            self._pieces.clear()
        return self.part

    def json_at_length(self, size: int) -> bytes:
        """The JSON of the part when its text had `size` characters."""
        part = self.joined()
        if len(part.text) == size:
            return part.wire_json()
        return part.model_copy(update={"text": part.text[:size]}).wire_json()
