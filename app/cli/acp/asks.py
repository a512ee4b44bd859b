"""The agent's questions to the user, permissions and others, in the editor's forms. Pure."""

from typing import Any

from acp import schema
from acp.helpers import text_block, tool_content

from app.api.client import Json
from app.cli.acp.tool_view import call_fields
from app.cli.support import revealed, subject

_REASONS = {
    "external_directory": "This is outside the project",
    "doom_loop": "The agent makes the same call again and again",
    "edit": "This changes files",
    "bash": "This runs a command",
    "webfetch": "This asks an address of the network",
    "task": "This starts a subagent",
    "read": "This reads a file that your rules ask about",
}
REJECT = "reject"
_OWN_ANSWER = "own"


def reason(request: Json) -> str:
    """Why the user is asked."""
    reason_text = _REASONS.get(request["permission"], f"Your rules ask about {request['permission']}")
    return revealed(f"{reason_text}: {', '.join(request['patterns'])}" if request["patterns"] else f"{reason_text}.")


def permission_call(request: Json, part: Json | None, directory: str) -> schema.ToolCallUpdate:
    """The call that waits, with the reason. `part`: the call's part, if the session has announced it."""
    shown_reason = tool_content(text_block(reason(request)))
    if part is None:
        call_id = (request.get("tool") or {}).get("callID") or request["id"]
        return schema.ToolCallUpdate(tool_call_id=call_id, title=subject(request), status="pending", content=[shown_reason])
    fields = call_fields(part, directory)
    asked = {"title": revealed(fields["title"]), "status": "pending", "content": [*(fields["content"] or []), shown_reason]}
    return schema.ToolCallUpdate(**{**fields, **asked})


def permission_options(request: Json) -> list[schema.PermissionOption]:
    always = revealed(", ".join(request["always"]))
    return [
        schema.PermissionOption(option_id="once", kind="allow_once", name="Allow once"),
        *([schema.PermissionOption(option_id="always", kind="allow_always", name=f"Always allow: {always}")] if always else []),
        schema.PermissionOption(option_id=REJECT, kind="reject_once", name="Reject"),
    ]


def reply_of(answer: schema.RequestPermissionResponse) -> str:
    """The reply to a permission request. An option that was not offered rejects it."""
    chosen = _option_of(answer)
    return chosen if chosen in ("once", "always") else REJECT


def _option_of(answer: schema.RequestPermissionResponse) -> str:
    return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else REJECT


# Questions, in an editor with forms.


def question_form(request: Json, session_id: str, tool_call_id: str | None) -> schema.ElicitationFormSessionMode:
    properties: dict[str, Any] = {}
    for number, question in enumerate(request["questions"]):
        properties[str(number)] = _property(question)
        if question.get("custom") is not False:
            own = schema.ElicitationStringPropertySchema(type="string", title="Or another answer")
            properties[f"{number}-{_OWN_ANSWER}"] = own
    form = schema.ElicitationSchema(type="object", properties=properties)
    return schema.ElicitationFormSessionMode(session_id=session_id, tool_call_id=tool_call_id, requested_schema=form)


def _property(question: Json) -> schema.ElicitationStringPropertySchema | schema.ElicitationMultiSelectPropertySchema:
    options = [
        schema.EnumOption(const=one["label"], title=one["label"], description=one["description"]) for one in question["options"]
    ]
    texts: Json = {"title": question["header"], "description": question["question"]}
    if question.get("multiple"):
        items = schema.TitledMultiSelectItems(any_of=options)
        return schema.ElicitationMultiSelectPropertySchema(type="array", items=items, **texts)
    return schema.ElicitationStringPropertySchema(type="string", one_of=options, **texts)


def form_answers(request: Json, answer: object) -> list[list[str]] | None:
    """None if the user has not answered."""
    if not isinstance(answer, schema.AcceptElicitationResponse):
        return None
    given = answer.content or {}
    numbers = range(len(request["questions"]))
    return [_answers(given.get(f"{number}-{_OWN_ANSWER}") or given.get(str(number))) for number in numbers]


def _answers(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return [str(value)] if value else []


# Questions, in an editor without forms: a choice of one answer, as for a permission.

KINDS_ALONE = {"CodeCompanion.nvim"}
"""Editors that show the kinds of a choice's options and not their names: several answers would look alike."""

Choice = tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]


def choices_of(question: Json, tool_call_id: str, *, one_by_one: bool) -> list[Choice]:
    """One choice of all answers. With `one_by_one` a choice for each answer, to be shown in turn until the user chooses one."""
    answers = [
        schema.PermissionOption(option_id=str(number), kind="allow_once", name=one["label"])
        for number, one in enumerate(question["options"])
    ]
    if one_by_one:
        titles = [f"{question['question']} {one['label']}: {one['description']}" for one in question["options"]]
        return [_choice(question, title, tool_call_id, [each]) for title, each in zip(titles, answers, strict=True)]
    return [_choice(question, question["question"], tool_call_id, answers)]


def _choice(question: Json, title: str, tool_call_id: str, answers: list[schema.PermissionOption]) -> Choice:
    lines = [question["question"], *(f"- {one['label']}: {one['description']}" for one in question["options"])]
    content = [tool_content(text_block("\n".join(lines)))]
    call = schema.ToolCallUpdate(tool_call_id=tool_call_id, title=title, kind="other", status="pending", content=content)
    return call, [*answers, schema.PermissionOption(option_id=REJECT, kind="reject_once", name="Do not answer")]


def chosen_answer(question: Json, answer: schema.RequestPermissionResponse) -> list[str] | None:
    labels = {str(number): one["label"] for number, one in enumerate(question["options"])}
    chosen = _option_of(answer)
    return [labels[chosen]] if chosen in labels else None


def is_cancelled(answer: schema.RequestPermissionResponse) -> bool:
    return not isinstance(answer.outcome, schema.AllowedOutcome)
