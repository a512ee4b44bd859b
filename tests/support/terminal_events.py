"""Events of a session as dictionaries, for the tests of what `opensession run` shows."""

from typing import Any

SESSION, PROMPT, ANSWER = "ses_1", "msg_1", "msg_2"


def event(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": properties}


def message(role: str, message_id: str, session: str = SESSION, **fields: Any) -> dict[str, Any]:
    return event("message.updated", info={"id": message_id, "sessionID": session, "role": role, **fields})


def part(kind: str, message_id: str = ANSWER, part_id: str = "prt_1", session: str = SESSION, **fields: Any) -> dict[str, Any]:
    value = {"id": part_id, "messageID": message_id, "sessionID": session, "type": kind, **fields}
    return event("message.part.updated", part=value)


def text(text: str, *, ended: bool = False, **fields: Any) -> dict[str, Any]:
    return part("text", text=text, time={"start": 1, "end": 2} if ended else {"start": 1}, **fields)


def delta(gained: str, part_id: str = "prt_1", session: str = SESSION, message_id: str = ANSWER) -> dict[str, Any]:
    ref = {"sessionID": session, "messageID": message_id, "partID": part_id}
    return event("message.part.delta", **ref, partType="text", field="text", delta=gained)


def tool(name: str, state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return part("tool", tool=name, callID="call", state=state, **fields)


def completed(given: dict[str, Any], title: str = "", **metadata: Any) -> dict[str, Any]:
    return {"status": "completed", "input": given, "output": "", "title": title, "metadata": metadata, "time": {}}


IDLE = event("session.idle", sessionID=SESSION)
PROMPTED = message("user", PROMPT)
ANSWERING = message("assistant", ANSWER)
