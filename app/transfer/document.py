"""A session as one document, in the shape of `opencode export`: `{info, messages: [{info, parts}]}`.

Further keys, which OpenCode ignores: `todo`, `diff`, and the session's descendants in `children`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from typing import Annotated, Any, TypeVar, get_args

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from app.schema.base import AnyID, Wire
from app.schema.errors import BadRequest, MessageError, TooLarge
from app.schema.message import MESSAGE, AssistantMessage, MessageWithParts
from app.schema.part import PART, StepFinishPart, StepStartPart
from app.schema.session import FileDiff, Session, SessionMetadata, Title, Todo
from app.sessions.usage import check_rules_size
from app.util import ids
from app.util.bounds import DEEPEST, has_more_values, is_deeper, parse_json


class SessionHistory(Wire):
    """One session without its descendants."""

    info: Session
    messages: list[MessageWithParts]
    todo: list[Todo] = []
    diff: list[FileDiff] = []


class SessionDocument(SessionHistory):
    children: Annotated[
        list[SessionHistory], Field(description="All descendants, parents before their children; `info.parentID` makes the tree")
    ] = []

    @classmethod
    def _always_there(cls) -> set[str]:
        return super()._always_there() - {"children"}

    def histories(self) -> list[SessionHistory]:
        """The session and its descendants."""
        return [self, *self.children]


_ERRORS = {union_member.model_fields["name"].default for union_member in get_args(get_args(MessageError)[0])}
_NO_NEWLINE = "\\"
_SESSION_IN_TEXT = re.compile(r"ses_[0-9A-Za-z]+")
_NAMED_BY = re.compile("(ses|msg|prt)_")


def as_stored(history: Any) -> None:
    """Rewrites a session with its messages, todos and diff, in place."""
    if not isinstance(history, dict):
        return
    if isinstance(info := history.get("info"), dict):
        info.setdefault("slug", str(info.get("id", "")))
        _rewrite_summary(info)
    for message in _dicts(history.get("messages")):
        _rewrite_message(message.get("info"))
    for todo in _dicts(history.get("todo")):
        todo.setdefault("id", ids.ascending("tool"))
    _rewrite_diffs(history.get("diff"))


def _rewrite_message(info: Any) -> None:
    if not isinstance(info, dict):
        return
    if info.get("role") == "user":
        _rewrite_summary(info)
        model = info.get("model")
        if isinstance(model, dict) and "variant" in model:
            info.setdefault("variant", model.pop("variant"))
    error = info.get("error")
    if isinstance(error, dict) and isinstance(error.get("name"), str) and error["name"] not in _ERRORS:
        info["error"] = _unknown_error(error)


def _unknown_error(error: dict[str, Any]) -> Any:
    """An unknown error keeps its name in the message."""
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return {"name": "UnknownError", "data": {"message": f"{error['name']}: {message}" if message else error["name"]}}


def _rewrite_summary(owner: dict[str, Any]) -> None:
    summary = owner.get("summary")
    if isinstance(summary, dict):
        _rewrite_diffs(summary.get("diffs"))


def _rewrite_diffs(diffs: Any) -> None:
    """Newer versions write a patch instead of both texts; their patch has all lines of the file."""
    for diff in _dicts(diffs):
        if "before" not in diff and "after" not in diff:
            diff["before"], diff["after"] = _texts(str(diff.get("patch") or ""))
        diff.setdefault("file", "")


def _texts(patch: str) -> tuple[str, str]:
    """The lines of both sides, as far as the patch has them."""
    before: list[str] = []
    after: list[str] = []
    touched: list[list[str]] = []
    in_hunk = False
    for line in StringIO(patch):
        if line.startswith("@@"):
            in_hunk = True
        elif in_hunk and line.startswith(_NO_NEWLINE):
            for side in touched:
                side[-1] = side[-1].removesuffix("\n")
        elif in_hunk:
            touched = [side for side, marks in ((before, " -"), (after, " +")) if line[0] in marks]
            for side in touched:
                side.append(line[1:])
    return "".join(before), "".join(after)


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


T = TypeVar("T")
FieldPath = tuple[str | int, ...]

MAX_VALUES = 4_000_000
"""Each takes some hundred bytes of memory while it is checked."""
MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Of what is in every list and event of a session, as the diff of its revert."""

_NAME = "[0-9A-Za-z_-]*$"
_SESSION_ID: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(pattern=f"^ses{_NAME}", max_length=256)])
_MESSAGE_ID: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(pattern=f"^msg{_NAME}", max_length=256)])
_KEY: TypeAdapter[str] = TypeAdapter(AnyID)
_TITLE: TypeAdapter[str] = TypeAdapter(Title)
_TIME: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, lt=253_402_300_800_000)])
"""Up to the end of the year 9999: later times are no date, and pages of lists begin at such a number, which a float holds."""
_METADATA: TypeAdapter[dict[str, Any]] = TypeAdapter(SessionMetadata)
_SESSION: TypeAdapter[Session] = TypeAdapter(Session)
_TODOS: TypeAdapter[list[Todo]] = TypeAdapter(list[Todo])
_DIFFS: TypeAdapter[list[FileDiff]] = TypeAdapter(list[FileDiff])
_TAGS = ("type", "status", "role", "name")
"""The fields that distinguish the members of a union; pydantic names the member in the path of an error."""


class InvalidDocument(BadRequest):
    """`path` leads to the invalid value."""

    def __init__(self, path: FieldPath, message: str) -> None:
        super().__init__(f"{_dotted(path)}: {message}" if path else message, list(path))


def read_document(body: bytes, max_part_bytes: int, *, new_ids: bool = False) -> SessionDocument:
    """Checks a document's JSON. With `new_ids` sessions, messages and parts get other ids than in the document. Raises
    InvalidDocument, and TooLarge for the whole or for a part."""
    value = _load(body)
    if new_ids:
        with suppress(AttributeError, KeyError, TypeError):  # it has another form, which the check names
            value = with_new_ids(value)
    root = _read_history(value, (), max_part_bytes)
    found = _list_of(value.get("children", []), ("children",))
    children = [_read_history(each, ("children", place), max_part_bytes) for place, each in enumerate(found)]
    _check_tree(root, children)
    return SessionDocument.model_construct(**dict(root), children=children)


def _load(body: bytes) -> Any:
    if has_more_values(body, MAX_VALUES):
        raise TooLarge(f"A document may have at most {MAX_VALUES} values.")
    try:
        value = parse_json(body)
    except ValueError as error:
        raise InvalidDocument((), f"This is no JSON: {error}") from error
    if is_deeper(value, DEEPEST):
        raise InvalidDocument((), f"This is nested more than {DEEPEST} deep")
    return value


def _read_history(value: Any, at: FieldPath, max_part_bytes: int) -> SessionHistory:
    """Rewrites other shapes of `value` in place."""
    if not isinstance(value, dict) or "info" not in value or "messages" not in value:
        raise InvalidDocument(at, "A session is an object with `info` and `messages`, as `opencode export` writes it")
    as_stored(value)
    info = _read_session(value["info"], (*at, "info"))
    messages = [
        _read_message(each, (*at, "messages", place), info.id, max_part_bytes)
        for place, each in enumerate(_list_of(value["messages"], (*at, "messages")))
    ]
    _require_distinct([message.info.id for message in messages], lambda place: (*at, "messages", place, "info", "id"))
    return SessionHistory.model_construct(
        info=info,
        messages=messages,
        todo=_valid(_TODOS, value.get("todo", []), (*at, "todo")),
        diff=_valid(_DIFFS, value.get("diff", []), (*at, "diff")),
    )


def _list_of(value: Any, at: FieldPath) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidDocument(at, "Input should be a list")
    return value


def _read_session(value: Any, at: FieldPath) -> Session:
    session = _valid(_SESSION, value, at)
    _valid(_SESSION_ID, session.id, (*at, "id"))
    _valid(_TITLE, session.title, (*at, "title"))
    _valid(_TIME, session.time.updated, (*at, "time", "updated"))
    if session.metadata is not None:
        _valid(_METADATA, session.metadata, (*at, "metadata"))
    check_rules_size(session.permission or [])
    if len(session.wire_json()) > MAX_SESSION_BYTES:
        raise TooLarge(f"{_dotted(at)}: a session may have at most {MAX_SESSION_BYTES} bytes beside its messages.")
    return session


def _read_message(value: Any, at: FieldPath, session_id: str, max_part_bytes: int) -> MessageWithParts:
    if not isinstance(value, dict):
        raise InvalidDocument(at, "A message is an object with `info` and `parts`")
    info = _valid(MESSAGE, value.get("info"), (*at, "info"))
    _valid(_MESSAGE_ID, info.id, (*at, "info", "id"))
    if isinstance(info, AssistantMessage):
        _valid(_KEY, info.parent_id, (*at, "info", "parentID"))
    _require_same(info.session_id, session_id, (*at, "info", "sessionID"))
    listed = _list_of(value.get("parts"), (*at, "parts"))
    parts = [_valid(PART, each, (*at, "parts", place)) for place, each in enumerate(listed)]
    for place, part in enumerate(parts):
        here = (*at, "parts", place)
        _valid(_KEY, part.id, (*here, "id"))
        _require_same(part.session_id, session_id, (*here, "sessionID"))
        _require_same(part.message_id, info.id, (*here, "messageID"))
        if isinstance(part, StepStartPart | StepFinishPart) and part.snapshot is not None:
            _valid(_KEY, part.snapshot, (*here, "snapshot"))
        if len(part.wire_json()) > max_part_bytes:
            most = f"{max_part_bytes} bytes (OPENSESSION_MAX_PART_BYTES)"
            raise TooLarge(f"{_dotted(here)}: a part may have at most {most}.")
    _require_distinct([part.id for part in parts], lambda place: (*at, "parts", place, "id"))
    return MessageWithParts.model_construct(info=info, parts=parts)


def _check_tree(root: SessionHistory, children: Sequence[SessionHistory]) -> None:
    known = {root.info.id}
    for place, child in enumerate(children):
        at: FieldPath = ("children", place, "info")
        if child.info.parent_id not in known:
            raise InvalidDocument((*at, "parentID"), f"{child.info.parent_id!r} is no session before it in this document")
        if child.info.id in known:
            raise InvalidDocument((*at, "id"), f"{child.info.id} stands in this document twice")
        known.add(child.info.id)


def _require_same(found: str, expected: str, at: FieldPath) -> None:
    if found != expected:
        raise InvalidDocument(at, f"is {found!r}, and {expected!r} is where it stands")


def _require_distinct(found: Sequence[str], path_of: Callable[[int], FieldPath]) -> None:
    seen: set[str] = set()
    for place, each in enumerate(found):
        if each in seen:
            raise InvalidDocument(path_of(place), f"{each} stands there twice")
        seen.add(each)


def _valid(adapter: TypeAdapter[T], value: Any, at: FieldPath) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidDocument((*at, *path_in(value, first["loc"])), first["msg"]) from None


def path_in(value: Any, location: FieldPath) -> FieldPath:
    """Without the names of union members, which are no fields."""
    path: list[str | int] = []
    may_be_tag = True
    for step in location:
        if may_be_tag and isinstance(value, dict) and step in [value.get(tag) for tag in _TAGS]:
            may_be_tag = False
            continue
        path.append(step)
        may_be_tag = True
        if isinstance(value, dict):
            value = value.get(step)
        else:
            is_there = isinstance(value, list) and isinstance(step, int) and step < len(value)
            value = value[step] if is_there else None
    return tuple(path)


def _dotted(path: FieldPath) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def with_new_ids(document: dict[str, Any]) -> dict[str, Any]:
    """A document with new ids, wherever they are named. Ids of messages and parts are looked up in the session that names them,
    else in all of the document."""
    histories = [document, *_as_list(document.get("children", []))]
    sessions = {each["info"]["id"]: ids.descending("session") for each in histories}
    inner = [_new_inner_ids(_as_list(each["messages"])) for each in histories]
    everywhere = {old: new for each in inner for old, new in each.items()}
    root, *children = [_renamed(each, {**everywhere, **own, **sessions}) for each, own in zip(histories, inner, strict=True)]
    return {**root, "children": children}


def _as_list(value: Any) -> list[Any]:
    """Raises TypeError for any other value, even an iterable one."""
    if not isinstance(value, list):
        raise TypeError
    return value


def _new_inner_ids(messages: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The new ids of messages and parts, by the old ones, in the order of the messages."""
    new = {}
    for message in messages:
        new[message["info"]["id"]] = ids.ascending("message")
        new |= {part["id"]: ids.ascending("part") for part in _as_list(message["parts"])}
    return new


def _renamed(history: dict[str, Any], new: Mapping[str, str]) -> dict[str, Any]:
    """A client's own id of another form is replaced only where it identifies: elsewhere it may be any word."""
    named = {old: its_new for old, its_new in new.items() if _NAMED_BY.match(old)}

    def identified(value: dict[str, Any]) -> dict[str, Any]:
        own = {name: new.get(value[name], value[name]) for name in ("id", "messageID", "parentID") if name in value}
        return {**_replaced(value, named), **own}

    messages = [
        {"info": identified(each["info"]), "parts": [_with_new_task(identified(part), new) for part in each["parts"]]}
        for each in history["messages"]
    ]
    others = {name: _replaced(value, named) for name, value in history.items() if name not in ("messages", "children")}
    return {**others, "messages": messages}


def _with_new_task(part: dict[str, Any], new: Mapping[str, str]) -> dict[str, Any]:
    """The task tool names the subagent's session in its text, so that the model can continue it."""
    if part["type"] != "tool" or part["tool"] != "task":
        return part
    state = part["state"]
    texts = {
        name: _SESSION_IN_TEXT.sub(lambda found: new.get(found[0], found[0]), state[name])
        for name in ("output", "error")
        if name in state
    }
    return {**part, "state": {**state, **texts}}


def _replaced(value: Any, new: Mapping[str, str]) -> Any:
    """Replaces each text that is exactly one of the ids."""
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, dict):
        return {key: _replaced(inner, new) for key, inner in value.items()}
    return [_replaced(inner, new) for inner in value] if isinstance(value, list) else value
