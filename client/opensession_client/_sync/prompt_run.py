# Generated from _async/prompt_run.py by `make openapi`.
"""A prompt, from its sending to its answer."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from opensession_client import operations
from opensession_client._sync.callbacks import OnEvent, OnPermission, OnQuestion, result_of
from opensession_client._sync.event_stream import SILENCE_SECONDS, EventStream
from opensession_client.answer import Answer
from opensession_client.errors import NotFound
from opensession_client.events import StreamedEvent, session_id_of
from opensession_client.models import (
    AnswerInput,
    AssistantMessage,
    EventPermissionAsked,
    EventQuestionAsked,
    EventServerHeartbeat,
    EventServerResync,
    EventSessionDeleted,
    EventSessionIdle,
    MessageWithParts,
    PermissionRequest,
    PromptInput,
    QuestionRequest,
    ReplyInput,
)
from opensession_client.operation import Operation

if TYPE_CHECKING:
    from opensession_client._sync.client import Opensession

T = TypeVar("T")

LEAST_SILENCE_SECONDS = 5.0
"""A slow server greets a new stream by then, however little time a prompt has."""


@dataclass(frozen=True, slots=True)
class PromptCallbacks:
    on_permission: OnPermission | None = None
    on_question: OnQuestion | None = None
    on_event: OnEvent | None = None


class PromptRun:
    """It follows the events of the session and its subagents, so that a connection or a server that is lost in between does not
    matter: the prompt has an id and is sent again, the stream resumes, and the answer is read from what is stored.
    """

    def __init__(
        self,
        client: "Opensession",
        session_id: str,
        prompt: PromptInput,
        callbacks: PromptCallbacks,
        timeout: float | None,
        *,
        sent_before: bool,
    ) -> None:
        """`sent_before`: perhaps, so that no event may tell of its end."""
        self._client = client
        self._session_id = session_id
        self._directory = ""
        self._prompt = prompt
        self._sent_before = sent_before
        self._callbacks = callbacks
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._retry_seconds = _smaller(client.reconnect_seconds, timeout)
        self._ours = {session_id: True}
        """By session: whether it is this one or a subagent's below it."""
        self._answered: set[str] = set()
        """Permission requests and questions."""

    def answer(self) -> Answer:
        """Raises PromptFailed, ApiError, TimeoutError and httpx's errors."""
        session = self._client.call(operations.session_get(self._session_id))
        self._directory = session.directory
        with self._stream() as events:
            self._send()
            self._answer_waiting()
            if not (self._sent_before and self._is_over()):
                self._follow(events)
        return Answer(self._replies()).or_raise()

    def _follow(self, events: EventStream) -> None:
        for event in events:
            self._take(event)
            if self._may_end_with(event) and self._is_over():
                return
            self._require_time()

    def _stream(self) -> EventStream:
        return EventStream(
            self._client.http,
            directory=self._directory,
            parts="delta",
            last_event_id=None,
            reconnect_seconds=self._retry_seconds,
            silence_seconds=min(max(self._timeout or SILENCE_SECONDS, LEAST_SILENCE_SECONDS), SILENCE_SECONDS),
        )

    def _call(self, operation: Operation[T]) -> T:
        """Again where nobody knows whether it arrived: a prompt is stored once, a reply is taken once."""
        return self._client.call(operation, retry_seconds=self._retry_seconds)

    def _send(self) -> None:
        self._call(operations.session_prompt_async(self._session_id, self._prompt))

    def _require_time(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError(f"The session {self._session_id} has not answered in {self._timeout} seconds; it goes on")

    def _take(self, event: StreamedEvent) -> None:
        match event:
            case EventPermissionAsked(properties=request):
                self._reply_to(request)
            case EventQuestionAsked(properties=question):
                self._reply_to(question)
            case EventServerResync():
                self._answer_waiting()
        session_id = session_id_of(event)
        if self._callbacks.on_event is not None and session_id and self._is_ours(session_id):
            result_of(self._callbacks.on_event(event))

    def _answer_waiting(self) -> None:
        """What was asked before the stream was opened, or while it was lost for too long."""
        if self._callbacks.on_permission is not None:
            for request in self._call(operations.permission_list(directory=self._directory)):
                self._reply_to(request)
        if self._callbacks.on_question is not None:
            for question in self._call(operations.question_list(directory=self._directory)):
                self._reply_to(question)

    def _reply_to(self, request: PermissionRequest | QuestionRequest) -> None:
        """Once. Somebody else may have been faster, or the turn was stopped: then there is nothing to reply to any more."""
        if request.id in self._answered or not self._is_ours(request.session_id):
            return
        self._answered.add(request.id)
        try:
            if isinstance(request, PermissionRequest):
                self._permit(request)
            else:
                self._choose(request)
        except NotFound:
            return

    def _permit(self, request: PermissionRequest) -> None:
        if self._callbacks.on_permission is None:
            return
        reply = result_of(self._callbacks.on_permission(request))
        body = reply if isinstance(reply, ReplyInput) else ReplyInput(reply=reply)
        self._call(operations.permission_reply(request.id, body))

    def _choose(self, request: QuestionRequest) -> None:
        if self._callbacks.on_question is None:
            return
        answers = result_of(self._callbacks.on_question(request))
        if answers is None:
            self._call(operations.question_reject(request.id))
        else:
            self._call(operations.question_reply(request.id, AnswerInput(answers=answers)))

    def _is_ours(self, session_id: str) -> bool:
        if session_id not in self._ours:
            self._ours[session_id] = self._has_parent_of_ours(session_id)
        return self._ours[session_id]

    def _has_parent_of_ours(self, session_id: str) -> bool:
        try:
            session = self._call(operations.session_get(session_id))
        except NotFound:
            return False
        return session.parent_id is not None and self._is_ours(session.parent_id)

    def _may_end_with(self, event: StreamedEvent) -> bool:
        """A heartbeat is an occasion to look, too: what says so is lost where the stream had to be resynchronised."""
        if isinstance(event, EventSessionIdle | EventSessionDeleted):
            return session_id_of(event) == self._session_id
        return isinstance(event, EventServerHeartbeat | EventServerResync)

    def _is_over(self) -> bool:
        """The session is idle and the prompt has an answer. A prompt without one in an idle session is sent again."""
        if self._session_id in self._call(operations.session_status(directory=self._directory)):
            return False
        if self._replies():
            return True
        self._send()
        return False

    def _replies(self) -> list[MessageWithParts]:
        """The assistant's messages since the prompt, oldest first. One that is not complete answers a later prompt."""
        found: list[MessageWithParts] = []
        for message in self._client.messages(self._session_id, page_size=20, retry_seconds=self._retry_seconds):
            if message.info.id == self._prompt.message_id:
                break
            if isinstance(message.info, AssistantMessage) and message.info.time.completed is not None:
                found.append(message)
        return found[::-1]


def _smaller(seconds: float | None, most: float | None) -> float | None:
    """None is for ever."""
    return min((each for each in (seconds, most) if each is not None), default=None)
