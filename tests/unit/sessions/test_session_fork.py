"""A fork is a copy with ids of its own, of all or of what stands before a message; and its title."""

from typing import Any

import pytest
from database_meter import metered
from session_parts import PLACE, Sessions, assistant, session, text_part, user

from app.schema.permission import Rule
from app.schema.session import Session
from app.sessions.fork import make_slug, title_of_fork
from app.sessions.summary import default_title, is_default_title
from app.util import clock


@pytest.fixture
async def talked(sessions: Sessions) -> Sessions:
    """Two prompts, each answered."""
    for n in (1, 3):
        await sessions.put(user(f"msg_{n}"), text_part(f"prt_{n}", 'a "quoted" text\n\u2028 of \U0001f600', f"msg_{n}"))
        answer = assistant(f"msg_{n + 1}", f"msg_{n}", cost=0.5, finish="stop")
        await sessions.put(answer, text_part(f"prt_{n}b", f"one {n}", answer.id), text_part(f"prt_{n}a", "two", answer.id))
    sessions.storage.bus.published.clear()
    return sessions


async def forked(sessions: Sessions, session_id: str = "ses_1") -> Session:
    return await sessions.forks.fork(PLACE, session_id, None)


def ids_of(messages: list[dict[str, Any]]) -> set[str]:
    return {each["id"] for message in messages for each in (message["info"], *message["parts"])}


async def test_a_fork_of_all_has_everything_in_its_order_under_new_ids(talked: Sessions) -> None:
    fork = await forked(talked)
    original, copy = await talked.read(), await talked.read(fork.id)
    copied, originals = ([part for message in messages for part in message["parts"]] for messages in (copy, original))
    assert [part["text"] for part in copied] == [part["text"] for part in originals]
    ids = ids_of(copy)
    assert len(ids) == 10 and ids.isdisjoint(ids_of(original))
    assert [(part["sessionID"], part["messageID"]) for part in copied] == [
        (fork.id, message["info"]["id"]) for message in copy for _ in message["parts"]
    ]
    assert [message["info"].get("parentID") for message in copy] == [None, copy[0]["info"]["id"], None, copy[2]["info"]["id"]]
    told = [event["properties"] for event in talked.announced]
    assert {properties["sessionID"] for properties in told} == {fork.id}
    assert [properties["info"] for properties in told[2:] if "info" in properties] == [message["info"] for message in copy]
    assert [properties["part"] for properties in told if "part" in properties] == copied, "the events tell what is read"


async def test_an_answer_whose_prompt_is_gone_keeps_the_old_id(talked: Sessions) -> None:
    await talked.service.remove_message(PLACE, "ses_1", "msg_1")
    copy = await talked.read((await forked(talked)).id)
    assert copy[0]["info"]["parentID"] == "msg_1"


async def test_a_fork_and_what_is_announced_of_it_are_whose_the_session_is(talked: Sessions) -> None:
    await talked.store.write("ses_1", "/d", lambda tx: tx.edit(lambda session: session.model_copy(update={"owner": "anna"})))
    talked.store.note_owners()
    talked.storage.bus.published.clear()
    assert (await forked(talked)).owner == "anna"
    assert [event.owner for event in talked.storage.bus.published] == 12 * ["anna"]


async def test_permission_rules_are_copied_and_a_parent_is_not(sessions: Sessions) -> None:
    rules = [Rule(permission="bash", pattern="*", action="deny")]
    await sessions.put(session("ses_2", permission=rules, parent_id="ses_1"), session_id="ses_2")
    fork = await forked(sessions, "ses_2")
    assert fork.permission == rules and fork.parent_id is None


async def test_a_longer_history_takes_no_more_statements(talked: Sessions) -> None:
    async def statements() -> int:
        with metered() as spent:
            await forked(talked)
        return spent.statements

    of_four_messages = await statements()
    for n in range(5, 45):
        await talked.put(user(f"msg_{n:03}"), text_part(f"prt_{n}", "more", f"msg_{n:03}"))
    assert await statements() <= of_four_messages <= 16


NOON = "New session - 2026-01-21T12:53:20.123Z"


def test_a_default_title_says_when_and_is_known_as_one() -> None:
    clock.set_source(lambda: 1_769_000_000.123)
    assert [default_title(child=child) for child in (False, True)] == [NOON, NOON.replace("New", "Child")]
    assert is_default_title(default_title(child=False)) and is_default_title(default_title(child=True))


@pytest.mark.parametrize("chosen", ["", NOON[:11], NOON[:14], NOON[:33] + "Z", f"x {NOON}", f"{NOON} (fork #1)", f"{NOON}\n"])
def test_a_chosen_title_is_not(chosen: str) -> None:
    assert not is_default_title(chosen)


@pytest.mark.parametrize(
    ("original", "fork"),
    [
        ("T", "T (fork #1)"),
        ("T (fork #1)", "T (fork #2)"),
        ("T (fork #9)", "T (fork #10)"),
        ("T (fork #1) x", "T (fork #1) x (fork #1)"),
        ("T (fork #x)", "T (fork #x) (fork #1)"),
        ("(fork #1)", "(fork #1) (fork #1)"),
        ("two\nlines (fork #3)", "two\nlines (fork #4)"),
        ("", " (fork #1)"),
        pytest.param(f"T (fork #{'9' * 5000})", f"T (fork #{'9' * 5000}) (fork #1)", id="no number that is read"),
    ],
)
def test_forks_are_counted(original: str, fork: str) -> None:
    assert title_of_fork(original) == fork


def test_a_slug_is_two_words() -> None:
    assert all(make_slug().count("-") == 1 and make_slug().replace("-", "").isalpha() for _ in range(100))
