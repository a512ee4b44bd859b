"""The text of a part that streams, gathered in pieces: `part.text += …` would copy all of it with every delta."""

from app.schema.part import ReasoningPart, TextPart


class GrowingText:
    """`append` takes constant time. The text of `part` may be behind; `joined` brings it up to date."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.part = part
        self.size = len(part.text)
        """In characters."""
        self.write_after = 0.0
        """By the event loop's clock: the store writes its row no earlier."""
        self._pieces: list[str] = []

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    def joined(self) -> TextPart | ReasoningPart:
        if self._pieces:
            self.part.text = "".join((self.part.text, *self._pieces))
            self._pieces.clear()
        return self.part

    def first_characters(self, size: int) -> bytes:
        """The JSON of the part as it was when its text was that long."""
        part = self.joined()
        if len(part.text) == size:
            return part.wire_json()
        return part.model_copy(update={"text": part.text[:size]}).wire_json()
