"""What visitors of a link are sent is the session as it is."""

import orjson
import pytest
from session_parts import PLACE, Sessions, text_part, user

from app.session.share import Shares


@pytest.fixture
async def share_id(sessions: Sessions) -> str:
    await sessions.put(user("msg_1"), text_part("prt_1", "Hello"))
    found = await Shares(sessions.store).share(PLACE, "ses_1", "")
    assert found.share
    return found.share.url.removeprefix("/s/")


async def texts(shares: Shares, share_id: str) -> list[str]:
    found = await shares.visit(share_id)
    return [part["text"] for message in orjson.loads(found.body)["messages"] for part in message["parts"]]


async def test_every_change_is_seen(sessions: Sessions, share_id: str) -> None:
    shares = Shares(sessions.store)
    assert await texts(shares, share_id) == ["Hello"]
    before = await shares.visit(share_id)
    assert await shares.visit(share_id) == before
    await sessions.put(text_part("prt_1", "Hello!"))
    assert await texts(shares, share_id) == ["Hello!"]
    assert (await shares.visit(share_id)).etag != before.etag
    sessions.stream("prt_2", "And")
    await sessions.store.barrier()
    assert await texts(shares, share_id) == ["Hello!", "And"]
    sessions.stream("prt_2", " on")
    assert await texts(shares, share_id) == ["Hello!", "And on"]
    await sessions.service.remove_message(PLACE, "ses_1", "msg_1")
    assert await texts(shares, share_id) == []
