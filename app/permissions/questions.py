"""Questions that the model asks the user."""

import orjson

from app.events.bus.base import Event
from app.events.telemetry.observer import Observer
from app.permissions.pending_requests import LeaseOfRun, PendingRequest, PendingRequests, RequestKind, Resolution
from app.record.engine import Database
from app.record.writer import Writer
from app.schema.event import (
    EventQuestionAsked,
    EventQuestionRejected,
    EventQuestionReplied,
    QuestionRef,
    QuestionReply,
)
from app.schema.permission import Answer, QuestionRequest

QuestionAnswers = list[Answer] | None
"""The chosen labels for each question; None if the user dismissed the questions."""


class Questions:
    def __init__(self, database: Database, writer: Writer, observer: Observer) -> None:
        kind = RequestKind("question", QuestionRequest.model_validate_json, orjson.loads, _asked_event, _rejected_event)
        self.pending = PendingRequests[QuestionRequest, QuestionAnswers](kind, database, writer, observer)

    async def ask(self, directory: str, request: QuestionRequest, lease: LeaseOfRun) -> list[Answer]:
        """Returns the chosen labels for each question. Raises QuestionRejected if the user dismisses them. A question that was
        asked before a restart continues under its id."""
        answers = await self.pending.wait(self.pending.add(directory, request, lease))
        if answers is None:
            raise QuestionRejected()
        return answers

    async def reply(self, request_id: str, answers: list[Answer]) -> None:
        """Raises RequestNotPending."""
        pending = await self.pending.find(request_id)
        await self.pending.resolve(Resolution(request_id, _replied_event(pending, answers), answers))

    async def reject(self, request_id: str) -> None:
        """Raises RequestNotPending."""
        pending = await self.pending.find(request_id)
        await self.pending.resolve(Resolution(request_id, _rejected_event(pending.directory, pending.request), None))


def _asked_event(directory: str, request: QuestionRequest) -> Event:
    return Event.of(EventQuestionAsked(properties=request), directory, request.session_id)


def _replied_event(pending: PendingRequest[QuestionRequest, QuestionAnswers], answers: list[Answer]) -> Event:
    request = pending.request
    replied = QuestionReply(session_id=request.session_id, request_id=request.id, answers=answers)
    return Event.of(EventQuestionReplied(properties=replied), pending.directory, request.session_id)


def _rejected_event(directory: str, request: QuestionRequest) -> Event:
    rejected = EventQuestionRejected(properties=QuestionRef(session_id=request.session_id, request_id=request.id))
    return Event.of(rejected, directory, request.session_id)


class QuestionRejected(Exception):
    def __init__(self) -> None:
        super().__init__("The user dismissed this question")
