"""Sharing a session, reading it by its link, taking the link back."""

import re

import pytest
from session_parts import PLACE, Sessions, session

from app.project.config.flags import Flags
from app.schema.config import Config
from app.sessions.share import Shares, may_share, shares_automatically

BASE = "https://here.example"


def shares(sessions: Sessions) -> Shares:
    return Shares(sessions.store)


def id_in(url: str) -> str:
    return url.removeprefix(f"{BASE}/s/")


async def shared(sessions: Sessions) -> str:
    found = await shares(sessions).share(PLACE, "ses_1", BASE)
    assert found.share
    return id_in(found.share.url)


async def test_a_link_cannot_be_guessed(sessions: Sessions) -> None:
    await sessions.put(*(session(f"ses_{n}") for n in range(2, 22)))
    links = [await shares(sessions).share(PLACE, f"ses_{n}", BASE) for n in range(1, 22)]
    ids = {id_in(one.share.url) for one in links if one.share}
    assert len(ids) == 21
    assert all(re.fullmatch(r"[0-9a-f]{40}", share_id) for share_id in ids)


async def test_sharing_is_announced_without_a_touch_and_twice_gives_the_same_link(sessions: Sessions) -> None:
    first = await shares(sessions).share(PLACE, "ses_1", BASE)
    assert [said["type"] for said in sessions.announced] == ["session.updated"]
    assert sessions.announced[0]["properties"]["info"] == first.wire() and first.time.updated == 1
    assert await shares(sessions).share(PLACE, "ses_1", BASE) == first
    assert len(sessions.announced) == 1


async def test_a_server_that_moved_gives_the_same_link_at_its_new_address(sessions: Sessions) -> None:
    share_id = await shared(sessions)
    moved = await shares(sessions).share(PLACE, "ses_1", "http://127.0.0.1:5000")
    assert moved.share and moved.share.url == f"http://127.0.0.1:5000/s/{share_id}"
    assert await shares(sessions).visit(share_id)


@pytest.mark.parametrize(
    ("config", "flags", "may", "by_itself"),
    [
        ({}, {}, True, False),
        ({"share": "manual"}, {}, True, False),
        ({"share": "auto"}, {}, True, True),
        ({"share": "disabled"}, {}, False, False),
        ({}, {"auto_share": True}, True, True),
        ({"share": "disabled"}, {"auto_share": True}, False, False),
        ({"share": "auto"}, {"disable_share": True}, False, False),
    ],
)
def test_what_configuration_and_flags_say(config: dict[str, str], flags: dict[str, bool], may: bool, by_itself: bool) -> None:
    given = Config.model_validate(config), Flags(**flags)  # type: ignore[arg-type]
    assert (may_share(*given), shares_automatically(*given)) == (may, by_itself)
