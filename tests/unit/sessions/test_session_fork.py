"""A fork is a copy with ids of its own, of all or of what stands before a message."""

import pytest
from database_meter import metered
from session_parts import PLACE, Sessions, assistant, session, text_part, user

from app.schema.permission import Rule


@pytest.fixture
async def talked(sessions: Sessions) -> Sessions:
    """Two prompts, each answered."""
    for n in (1, 3):
        await sessions.put(user(f"msg_{n}"), text_part(f"prt_{n}", f"question {n}", f"msg_{n}"))
        answer = assistant(f"msg_{n + 1}", f"msg_{n}", cost=0.5, finish="stop")
        await sessions.put(answer, text_part(f"prt_{n}b", "one", answer.id), text_part(f"prt_{n}a", "two", answer.id))
    sessions.storage.bus.published.clear()
    return sessions


async def test_a_fork_of_all_has_everything_in_its_order_under_new_ids(talked: Sessions) -> None:
    fork = await talked.forks.fork(PLACE, "ses_1", None)
    original, copy = await talked.read(), await talked.read(fork.id)
    assert [[part["text"] for part in message["parts"]] for message in copy] == [
        [part["text"] for part in message["parts"]] for message in original
    ]
    ids = {message["info"]["id"] for message in copy} | {part["id"] for message in copy for part in message["parts"]}
    assert len(ids) == 10
    assert ids.isdisjoint({message["info"]["id"] for message in original})
    assert ids.isdisjoint({part["id"] for message in original for part in message["parts"]})
    assert {part["sessionID"] for message in copy for part in message["parts"]} == {fork.id}
    assert all(part["messageID"] == message["info"]["id"] for message in copy for part in message["parts"])


async def test_a_fork_and_what_is_announced_of_it_are_whose_the_session_is(talked: Sessions) -> None:
    await talked.store.write("ses_1", "/d", lambda tx: tx.edit(lambda session: session.model_copy(update={"owner": "anna"})))
    talked.store.note_owners()
    talked.storage.bus.published.clear()
    fork = await talked.forks.fork(PLACE, "ses_1", None)
    assert fork.owner == "anna"
    assert [event.owner for event in talked.storage.bus.published] == 12 * ["anna"]


async def test_answers_point_at_the_copies_of_their_prompts(talked: Sessions) -> None:
    copy = await talked.read((await talked.forks.fork(PLACE, "ses_1", None)).id)
    assert [message["info"].get("parentID") for message in copy] == [None, copy[0]["info"]["id"], None, copy[2]["info"]["id"]]


async def test_an_answer_whose_prompt_is_gone_keeps_the_old_id(talked: Sessions) -> None:
    await talked.service.remove_message(PLACE, "ses_1", "msg_1")
    copy = await talked.read((await talked.forks.fork(PLACE, "ses_1", None)).id)
    assert copy[0]["info"]["parentID"] == "msg_1"


async def test_permission_rules_are_copied_and_a_parent_is_not(sessions: Sessions) -> None:
    rules = [Rule(permission="bash", pattern="*", action="deny")]
    await sessions.put(session("ses_2", permission=rules, parent_id="ses_1"), session_id="ses_2")
    fork = await sessions.forks.fork(PLACE, "ses_2", None)
    assert fork.permission == rules and fork.parent_id is None


async def test_events_tell_what_a_read_of_the_fork_shows(talked: Sessions) -> None:
    await talked.put(user("msg_5"), text_part("prt_5", 'a "quoted" text\n\u2028 of \U0001f600', "msg_5"))
    talked.storage.bus.published.clear()
    fork = await talked.forks.fork(PLACE, "ses_1", None)
    told = [event["properties"] for event in talked.announced]
    read = await talked.read(fork.id)
    assert {properties["sessionID"] for properties in told} == {fork.id}
    assert [properties["info"] for properties in told[2:] if "info" in properties] == [message["info"] for message in read]
    assert [properties["part"] for properties in told if "part" in properties] == [
        part for message in read for part in message["parts"]
    ]


async def test_a_longer_history_takes_no_more_statements(talked: Sessions) -> None:
    async def statements() -> int:
        with metered() as spent:
            await talked.forks.fork(PLACE, "ses_1", None)
        return spent.statements

    of_four_messages = await statements()
    for n in range(5, 45):
        await talked.put(user(f"msg_{n:03}"), text_part(f"prt_{n}", "more", f"msg_{n:03}"))
    assert await statements() <= of_four_messages <= 16
