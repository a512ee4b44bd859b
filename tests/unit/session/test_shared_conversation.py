"""What visitors are sent is rendered once for each state of the session."""

import asyncio

import orjson
import pytest
from session_parts import PLACE, Sessions, more_sessions, session, text_part, user

from app.session.share import Shares
from app.session.shared_conversation import SharedConversations


@pytest.fixture
async def share_id(sessions: Sessions) -> str:
    await sessions.put(user("msg_1"), text_part("prt_1", "Hello"))
    return await shared(sessions, "ses_1")


async def shared(sessions: Sessions, session_id: str) -> str:
    found = await Shares(sessions.store).share(PLACE, session_id, "")
    assert found.share
    return found.share.url.removeprefix("/s/")


async def texts(conversations: SharedConversations, share_id: str) -> list[str]:
    found = await conversations.get(share_id)
    assert found
    return [part["text"] for message in orjson.loads(found.body)["messages"] for part in message["parts"]]


async def test_those_who_come_at_once_and_later_share_one_rendering(sessions: Sessions, share_id: str) -> None:
    conversations = SharedConversations(sessions.store)
    found = await asyncio.gather(*(conversations.get(share_id) for _ in range(20)))
    assert all(one is found[0] for one in [*found, await conversations.get(share_id)])
    assert found[0]


async def test_every_change_is_seen(sessions: Sessions, share_id: str) -> None:
    conversations = SharedConversations(sessions.store)
    assert await texts(conversations, share_id) == ["Hello"]
    await sessions.put(text_part("prt_1", "Hello!"))
    assert await texts(conversations, share_id) == ["Hello!"]
    sessions.stream("prt_2", "And")
    await sessions.store.barrier()
    assert await texts(conversations, share_id) == ["Hello!", "And"]
    sessions.stream("prt_2", " on")
    assert await texts(conversations, share_id) == ["Hello!", "And on"]
    await sessions.service.remove_message(PLACE, "ses_1", "msg_1")
    assert await texts(conversations, share_id) == []


async def test_what_another_session_does_renders_nothing(sessions: Sessions, share_id: str) -> None:
    conversations = SharedConversations(sessions.store)
    before = await conversations.get(share_id)
    await sessions.put(session("ses_2"), session_id="ses_2")
    await sessions.put(user("msg_2", "ses_2"), session_id="ses_2")
    assert await conversations.get(share_id) is before


async def test_what_another_server_adds_or_removes_is_seen(sessions: Sessions, share_id: str) -> None:
    conversations, other = SharedConversations(sessions.store), more_sessions(sessions.storage)
    assert await texts(conversations, share_id) == ["Hello"]
    await other.put(text_part("prt_2", "from afar"))
    assert await texts(conversations, share_id) == ["Hello", "from afar"]
    await other.service.remove_part(PLACE, "ses_1", "msg_1", "prt_1")
    assert await texts(conversations, share_id) == ["from afar"]
    await Shares(other.store).unshare(PLACE, "ses_1")
    assert await conversations.get(share_id) is None


async def test_the_least_recently_visited_make_room(sessions: Sessions, share_id: str) -> None:
    first = await SharedConversations(sessions.store).get(share_id)
    assert first
    conversations = SharedConversations(sessions.store, max_bytes=3 * len(first.body))
    links = [share_id]
    for number in range(2, 5):
        await sessions.put(session(f"ses_{number}"), session_id=f"ses_{number}")
        hello = text_part("prt_1", "Hello", session_id=f"ses_{number}")
        await sessions.put(user("msg_1", f"ses_{number}"), hello, session_id=f"ses_{number}")
        links.append(await shared(sessions, f"ses_{number}"))
    kept = [await conversations.get(link) for link in links[:3]]
    assert await conversations.get(links[0]) is kept[0]
    await conversations.get(links[3])
    assert await conversations.get(links[0]) is kept[0]
    assert await conversations.get(links[1]) is not kept[1]


async def test_the_pieces_make_the_whole(sessions: Sessions, share_id: str) -> None:
    await sessions.put(text_part("prt_1", "x" * 600_000))
    conversations = SharedConversations(sessions.store)
    found = await conversations.get(share_id)
    assert found
    pieces = [piece async for piece in conversations.chunks(found)]
    assert b"".join(pieces) == found.body and len(pieces) == 3
