from typing import ClassVar

from app.schema.base import QuestionID, SessionID, Wire
from app.schema.permission import CallRef


class QuestionOption(Wire):
    label: str
    description: str


class QuestionInfo(Wire):
    question: str
    header: str
    options: list[QuestionOption]
    multiple: bool | None = None
    custom: bool | None = None


class QuestionRequest(Wire):
    unattended: ClassVar[bool] = False

    id: QuestionID
    session_id: SessionID
    questions: list[QuestionInfo]
    tool: CallRef | None = None


Answer = list[str]


class AnswerInput(Wire):
    answers: list[Answer]
