"""Questions of the model to a person."""

from app.bus.base import Event
from app.pending.requests import PendingRequest, PendingRequests, RequestKind, Resolution
from app.question.errors import QuestionRejected
from app.schema.event import (
    EventQuestionAsked,
    EventQuestionRejected,
    EventQuestionReplied,
    QuestionRef,
    QuestionReply,
)
from app.schema.question import Answer, QuestionRequest
from app.storage.engine import Database
from app.storage.statements import Statements
from app.storage.writer import Writer

QuestionAnswers = list[Answer] | None
"""The labels chosen for each question; None: the person rejected the questions."""


class Questions:
    def __init__(self, database: Database, sql: Statements, writer: Writer) -> None:
        kind = RequestKind("question", QuestionRequest.model_validate_json, _asked, _rejected)
        self.pending: PendingRequests[QuestionRequest, QuestionAnswers] = PendingRequests(kind, database, sql, writer)

    async def ask(self, directory: str, request: QuestionRequest) -> list[Answer]:
        """An answer for each question: the labels chosen. Raises QuestionRejected when it is dismissed. Asked before a restart,
        the same question goes on."""
        answers = await self.pending.wait(self.pending.add(directory, request))
        if answers is None:
            raise QuestionRejected()
        return answers

    async def pending_json(self, directory: str) -> bytes:
        return await self.pending.all_json(directory)

    async def reply(self, request_id: str, answers: list[Answer]) -> None:
        """Raises RequestNotPending."""
        pending = self.pending.find(request_id)
        await self.pending.resolve(Resolution(request_id, _replied(pending, answers), answers))

    async def reject(self, request_id: str) -> None:
        """Raises RequestNotPending."""
        pending = self.pending.find(request_id)
        await self.pending.resolve(Resolution(request_id, _rejected(pending.directory, pending.request), None))


def _asked(directory: str, request: QuestionRequest) -> Event:
    return Event(EventQuestionAsked(properties=request).wire_json(), directory, request.session_id)


def _replied(pending: PendingRequest[QuestionRequest, QuestionAnswers], answers: list[Answer]) -> Event:
    request = pending.request
    replied = QuestionReply(session_id=request.session_id, request_id=request.id, answers=answers)
    return Event(EventQuestionReplied(properties=replied).wire_json(), pending.directory, request.session_id)


def _rejected(directory: str, request: QuestionRequest) -> Event:
    rejected = EventQuestionRejected(properties=QuestionRef(session_id=request.session_id, request_id=request.id))
    return Event(rejected.wire_json(), directory, request.session_id)
