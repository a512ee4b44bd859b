"""Rewrites what newer and older OpenCode versions write into the shapes that are stored here. Pure, on JSON values.

What cannot be rewritten stays as it is, for the validation that follows to name.
"""

from io import StringIO
from typing import Any, get_args

from app.schema.errors import MessageError
from app.util import ids

_ERRORS = {union_member.model_fields["name"].default for union_member in get_args(get_args(MessageError)[0])}
_NO_NEWLINE = "\\"


def as_stored(history: Any) -> None:
    """Rewrites a session with its messages, todos and diff, in place."""
    if not isinstance(history, dict):
        return
    _rewrite_session(history.get("info"))
    for message in _dicts(history.get("messages")):
        _rewrite_message(message.get("info"))
    for todo in _dicts(history.get("todo")):
        todo.setdefault("id", ids.ascending("tool"))
    _rewrite_diffs(history.get("diff"))


def _rewrite_session(info: Any) -> None:
    if not isinstance(info, dict):
        return
    info.setdefault("slug", str(info.get("id", "")))
    _rewrite_summary(info)


def _rewrite_message(info: Any) -> None:
    if not isinstance(info, dict):
        return
    if info.get("role") == "user":
        _rewrite_summary(info)
        _move_variant(info)
    error = info.get("error")
    if isinstance(error, dict) and isinstance(error.get("name"), str) and error["name"] not in _ERRORS:
        info["error"] = _unknown_error(error)


def _move_variant(info: dict[str, Any]) -> None:
    model = info.get("model")
    if isinstance(model, dict) and "variant" in model:
        info.setdefault("variant", model.pop("variant"))


def _unknown_error(error: dict[str, Any]) -> Any:
    """An error that is not known here keeps its name in the message."""
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return {"name": "UnknownError", "data": {"message": f"{error['name']}: {message}" if message else error["name"]}}


def _rewrite_summary(owner: dict[str, Any]) -> None:
    summary = owner.get("summary")
    if isinstance(summary, dict):
        _rewrite_diffs(summary.get("diffs"))


def _rewrite_diffs(diffs: Any) -> None:
    """Newer versions write a patch in the place of both texts; theirs has all lines of the file."""
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
            _drop_newline(touched)
        elif in_hunk:
            touched = [side for side, marks in ((before, " -"), (after, " +")) if line[0] in marks]
            for side in touched:
                side.append(line[1:])
    return "".join(before), "".join(after)


def _drop_newline(sides: list[list[str]]) -> None:
    for side in sides:
        side[-1] = side[-1].removesuffix("\n")


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
