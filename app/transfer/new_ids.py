"""Gives the sessions, messages and parts of a document new ids, wherever they are named. Pure, on JSON values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.util import ids

_SESSION_IN_TEXT = re.compile(r"ses_[0-9A-Za-z]+")
_NAMED_BY = re.compile("(ses|msg|prt)_")
"""A client's own id of another form is replaced only where it identifies: elsewhere it may be any word."""


def with_new_ids(document: Any) -> Any:
    """The document with new ids; a value of another form, which validation is to name, as it is. Ids of messages and parts are
    those of the session they are named in, else of any other of the document."""
    if not isinstance(document, dict):
        return document
    histories = [document, *_list(document.get("children"))]
    sessions = {each["info"]["id"]: ids.descending("session") for each in histories if _has_id(each)}
    inner = [dict(_new_inner_ids(each)) for each in histories]
    everywhere = {**{old: new for each in inner for old, new in each.items()}, **sessions}
    root, *children = [_renamed(each, {**everywhere, **own, **sessions}) for each, own in zip(histories, inner, strict=True)]
    return {**root, "children": children} if children else root


def _new_inner_ids(history: Any) -> Iterator[tuple[str, str]]:
    """Of messages and parts, in their order."""
    for message in _list(history.get("messages") if isinstance(history, dict) else None):
        if _has_id(message):
            yield message["info"]["id"], ids.ascending("message")
            for part in _list(message.get("parts")):
                if isinstance(part, dict) and isinstance(part.get("id"), str):
                    yield part["id"], ids.ascending("part")


def _renamed(history: Any, new: Mapping[str, str]) -> Any:
    if not isinstance(history, dict):
        return history
    named = {old: its_new for old, its_new in new.items() if _NAMED_BY.match(old)}
    renamed = {name: _replaced(value, named) for name, value in history.items() if name not in ("messages", "children")}
    messages = history.get("messages")
    if isinstance(messages, list):
        messages = [_renamed_message(each, named, new) for each in messages]
    return {**history, **renamed, "messages": messages}


def _renamed_message(message: Any, named: Mapping[str, str], new: Mapping[str, str]) -> Any:
    if not isinstance(message, dict):
        return message
    parts = message.get("parts")
    if isinstance(parts, list):
        parts = [_renamed_part(each, named, new) for each in parts]
    return {**message, "info": _identified(_replaced(message.get("info"), named), new), "parts": parts}


def _renamed_part(part: Any, named: Mapping[str, str], new: Mapping[str, str]) -> Any:
    replaced = _identified(_replaced(part, named), new)
    if isinstance(replaced, dict) and replaced.get("tool") == "task" and isinstance(replaced.get("state"), dict):
        _rename_in_output(replaced["state"], new)
    return replaced


def _identified(value: Any, new: Mapping[str, str]) -> Any:
    """With the ids of another form replaced too."""
    if not isinstance(value, dict):
        return value
    of_it = {name: new.get(value[name], value[name]) for name in ("id", "messageID", "parentID") if _is_text(value, name)}
    return {**value, **of_it}


def _rename_in_output(state: dict[str, Any], new: Mapping[str, str]) -> None:
    """The task tool names the subagent's session in its text, for the model to go on with."""
    for name in ("output", "error"):
        if _is_text(state, name):
            state[name] = _SESSION_IN_TEXT.sub(lambda found: new.get(found[0], found[0]), state[name])


def _replaced(value: Any, new: Mapping[str, str]) -> Any:
    """With each text that is one of the ids, and nothing else, replaced."""
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, dict):
        return {key: _replaced(inner, new) for key, inner in value.items()}
    return [_replaced(inner, new) for inner in value] if isinstance(value, list) else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _has_id(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("info"), dict) and _is_text(value["info"], "id")


def _is_text(value: Mapping[str, Any], name: str) -> bool:
    return isinstance(value.get(name), str)
