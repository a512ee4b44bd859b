"""What must hold of the journal, which is a total order of what happened, and of what clients were told of it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from follower import Follower
from replicas import Replicas

from app.events.bus.base import EventId

CAUGHT_UP_SECONDS = 15

Journal = Sequence[tuple[int, dict[str, Any]]]


async def not_heard(replicas: Replicas, followers: Sequence[Follower]) -> list[str]:
    """Every follower's events are those of the journal since it came, in order and as they are stored."""
    head = await asyncio.to_thread(replicas.head)
    deadline = asyncio.get_running_loop().time() + CAUGHT_UP_SECONDS
    while any(follower.cursor < head for follower in followers) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
    journal = await asyncio.to_thread(replicas.journal, 0, head)
    return [
        f"follower {number}: {complaint}"
        for number, follower in enumerate(followers)
        for complaint in _unlike(follower, [entry for entry in journal if entry[0] > (follower.start or 0)], head)
    ]


def _unlike(follower: Follower, expected: Journal, head: int) -> list[str]:
    heard = [(one.id, one.event) for one in follower.events if one.id <= head]
    ids, wanted = [key for key, _ in heard], [key for key, _ in expected]
    missed, doubled = set(wanted) - set(ids), len(ids) - len(set(ids))
    found = [f"{len(missed)} events missed, the first {min(missed)}"] if missed else []
    found += [f"{doubled} events twice"] if doubled else []
    found += ["events out of order"] if ids != sorted(ids) else []
    found += [f"{len(set(ids) - set(wanted))} events that are not in the journal"] if set(ids) - set(wanted) else []
    stored = {seq: {"id": EventId(seq).wire(None).decode(), **event} for seq, event in expected}
    found += [f"event {key} is not as stored" for key, event in heard if key in stored and stored[key] != event][:1]
    found += [f"told to read everything again {follower.resyncs} times"] if follower.resyncs else []
    return found


def changed_after_their_end(journal: Journal) -> list[str]:
    """A tool call or an answer that has ended stays as it is: a run that was taken over writes nothing any more."""
    ended: dict[str, str] = {}
    found = []
    for seq, event in journal:
        key, state = _state(event)
        if key in ended and state != ended[key]:
            found.append(f"{key} was {ended[key]} and became {state} at {seq}")
        elif key and state in ("completed", "error"):
            ended[key] = state
    return found


def _state(event: dict[str, Any]) -> tuple[str, str]:
    values = event["properties"]
    if event["type"] == "message.part.updated" and values["part"]["type"] == "tool":
        return str(values["part"]["id"]), str(values["part"]["state"]["status"])
    if event["type"] == "message.updated" and values["info"]["role"] == "assistant":
        return str(values["info"]["id"]), "completed" if "completed" in values["info"]["time"] else "open"
    return "", ""


def answered_more_than_once(journal: Journal) -> list[str]:
    kinds = ("permission.replied", "question.replied", "question.rejected")
    replies = Counter(event["properties"]["requestID"] for _, event in journal if event["type"] in kinds)
    return [f"{request} was answered {count} times" for request, count in replies.items() if count > 1]
