"""Files as editors have them, with unsaved changes.

A client with an editor waits, at a session that it has open, for the next file that the agent reads there, and answers with its
text. Of several clients the one that came last is asked. Nothing is stored: without an answer in time the disk is read.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from app.schema.errors import ServiceError
from app.schema.part import EditorFile

ANSWER_SECONDS = 2.0
LINGER_SECONDS = 2.0
"""A client counts as present for these seconds after a wait: it is asked as soon as it waits again."""


class EditorsReleased(ServiceError):
    status = 503
    name = "EditorsReleasedError"
    text = "The server stops: wait for files again when it is back."


@dataclass
class _Editors:
    """The editors of one session. `waiting`: their waits, the newest at the end. `asked`: files that were asked for while none
    waited. `removal`: when nobody has waited for LINGER_SECONDS, the session counts as without editors."""

    waiting: list[asyncio.Future[EditorFile]] = field(default_factory=list)
    asked: list[EditorFile] = field(default_factory=list)
    removal: asyncio.TimerHandle | None = None

    def cancel_removal(self) -> None:
        if self.removal is not None:
            self.removal.cancel()

    async def wait(self) -> EditorFile:
        wait = asyncio.get_running_loop().create_future()
        self.waiting.append(wait)
        try:
            found: EditorFile = await wait
            return found
        finally:
            self.waiting.remove(wait)


class EditorFiles:
    def __init__(self) -> None:
        self._editors: dict[str, _Editors] = {}
        self._texts: dict[tuple[str, str], asyncio.Future[str | None]] = {}
        self._released = False

    # For clients.

    async def next(self, session_id: str) -> EditorFile:
        """The next file that is read in the session. Raises EditorsReleased."""
        if self._released:
            raise EditorsReleased
        editors = self._editors.setdefault(session_id, _Editors())
        editors.cancel_removal()
        try:
            return editors.asked.pop(0) if editors.asked else await editors.wait()
        finally:
            if not editors.waiting:
                editors.cancel_removal()
                editors.removal = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._editors.pop, session_id, None)

    def answer(self, session_id: str, file_id: str, text: str | None) -> bool:
        """Returns whether somebody still waits for the text."""
        answer = self._texts.get((session_id, file_id))
        if answer is None or answer.done():
            return False
        answer.set_result(text)
        return True

    # For tools.

    @property
    def is_empty(self) -> bool:
        """Whether no session has an editor."""
        return not self._editors

    def has_editor(self, session_id: str) -> bool:
        return session_id in self._editors

    async def text(self, session_id: str, path: Path) -> str | None:
        """None if the editor does not have the file, or has not answered in time."""
        editors = self._editors.get(session_id)
        if editors is None:
            return None
        file = EditorFile(id=secrets.token_hex(8), path=str(path))
        answer = self._texts[session_id, file.id] = asyncio.get_running_loop().create_future()
        waiting = [wait for wait in editors.waiting if not wait.done()]
        if waiting:
            waiting[-1].set_result(file)
        else:
            editors.asked.append(file)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found: str | None = await answer
                return found
        except TimeoutError:
            return None
        finally:
            del self._texts[session_id, file.id]
            if file in editors.asked:
                editors.asked.remove(file)

    def release(self) -> None:
        """Ends the clients' waits, because the server stops."""
        self._released = True
        for editors in self._editors.values():
            for wait in editors.waiting:
                if not wait.done():
                    wait.set_exception(EditorsReleased())
