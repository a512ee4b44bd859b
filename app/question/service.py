"""Questions of the model to a person."""

from app.bus.base import Event
from app.question.errors import QuestionRejected
from app.schema.event import (
    EventQuestionAsked,
    EventQuestionRejected,
    EventQuestionReplied,
    QuestionRef,
    QuestionReply,
)
from app.schema.question import Answer, QuestionRequest
from app.storage.asks import Ask, Asks, ask_key
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Writer


class Questions:
    def __init__(self, database: Database, sql: Statements, writer: Writer) -> None:
        self.asks: Asks[QuestionRequest, list[Answer]] = Asks("question", database, sql, writer)

    async def ask(self, directory: str, request: QuestionRequest) -> list[Answer]:
        """An answer for each question: the labels chosen. Raises QuestionRejected when it is dismissed. Asked before a restart,
        the same question goes on."""
        request.id = self.asks.id_for(ask_key(request.wire())) or request.id
        return await self.asks.wait(
            Ask(
                id=request.id,
                session_id=request.session_id,
                directory=directory,
                request=request,
                body=request.wire_json(),
                asked=Event(EventQuestionAsked(properties=request).wire_json(), directory, request.session_id),
                withdrawn=_rejected(directory, request),
            )
        )

    async def pending_json(self, directory: str) -> bytes:
        return await self.asks.all_json(directory)

    async def reply(self, request_id: str, answers: list[Answer]) -> bool:
        """False when no such question waits (any more)."""
        ask = self.asks.find(request_id)
        if ask is None:
            return False
        replied = QuestionReply(session_id=ask.session_id, request_id=ask.id, answers=answers)
        event = Event(EventQuestionReplied(properties=replied).wire_json(), ask.directory, ask.session_id)
        await self.asks.answer(ask, event, answers)
        return True

    async def reject(self, request_id: str) -> bool:
        ask = self.asks.find(request_id)
        if ask is None:
            return False
        await self.asks.answer(ask, _rejected(ask.directory, ask.request), QuestionRejected())
        return True


def _rejected(directory: str, request: QuestionRequest) -> Event:
    rejected = EventQuestionRejected(properties=QuestionRef(session_id=request.session_id, request_id=request.id))
    return Event(rejected.wire_json(), directory, request.session_id)
