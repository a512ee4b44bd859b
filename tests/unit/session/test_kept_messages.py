"""What was read before is not parsed again, and what has changed since is."""

from weakref import ref

from database_meter import metered
from session_parts import DIRECTORY, Sessions, assistant, text_part, user

from app.schema.message import AssistantTime, MessageWithParts
from app.schema.part import TextPart
from app.session.kept_messages import KeptMessages
from app.session.session_tx import SessionTx
from app.session.store import SHORT_HISTORY
from app.storage import queries


async def conversation(sessions: Sessions) -> list[MessageWithParts]:
    return (await sessions.store.conversation("ses_1"))[1]


def text_of(message: MessageWithParts) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


async def put_turn(sessions: Sessions, number: int) -> None:
    prompt, answer = f"msg_{2 * number}", f"msg_{2 * number + 1}"
    await sessions.put(user(prompt), text_part(f"prt_{prompt}", "ask", prompt))
    await sessions.put(assistant(answer, prompt), text_part(f"prt_{answer}", "said", answer))


async def test_messages_that_have_not_changed_are_the_same_values(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    first = await conversation(sessions)
    await put_turn(sessions, 2)
    second = await conversation(sessions)
    assert second[0] is first[0]
    assert second[1] == first[1] and second[1] is not first[1], "the newest may still be written"
    assert second == await sessions.store.messages("ses_1")


async def test_what_has_changed_is_read_anew(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    await put_turn(sessions, 2)
    before = await conversation(sessions)
    await sessions.put(text_part("prt_msg_2", "ask otherwise", "msg_2"))
    await sessions.put(text_part("prt_new", "added", "msg_3"))
    changed = await conversation(sessions)
    assert [text_of(message) for message in changed[:2]] == [["ask otherwise"], ["said", "added"]]
    assert changed[2] is before[2]


async def test_a_part_that_streams_is_as_it_is_now(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    await put_turn(sessions, 2)
    await conversation(sessions)
    sessions.stream("prt_live", "streams", "msg_3")
    await sessions.store.live.first_writes()
    assert text_of((await conversation(sessions))[1]) == ["said", "streams"]


async def test_an_answer_that_is_not_complete_is_not_kept(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    await sessions.put(assistant("msg_open", "msg_2", time=AssistantTime(created=1)), user("msg_9"))
    before = await conversation(sessions)
    after = await conversation(sessions)
    assert [later is earlier for earlier, later in zip(before, after, strict=True)] == [True, True, False, False]


async def test_a_conversation_that_was_long_is_not_taken_for_a_short_one(sessions: Sessions) -> None:
    for number in range(1, SHORT_HISTORY // 2 + 2):
        await put_turn(sessions, number)
    with metered() as spent:
        first = await conversation(sessions)
        looked_at = spent.statements
        again = await conversation(sessions)
    assert again == first and len(first) > SHORT_HISTORY
    assert spent.statements - looked_at < looked_at


async def test_of_a_long_conversation_only_what_has_changed_is_read(sessions: Sessions) -> None:
    for number in range(1, SHORT_HISTORY):
        await put_turn(sessions, number)
    await conversation(sessions)
    known = {message_id: kept.text for message_id, kept in sessions.store._kept.of("ses_1", {}).items()}
    await sessions.put(text_part("prt_msg_7", "said otherwise", "msg_7"))
    history = await sessions.store.query(queries.live_history, "ses_1", known=known)
    assert [row.id for row in history.stored.messages] == ["msg_7", [*history.texts][-1]]
    assert {row.message_id for row in history.stored.parts} == {"msg_7", [*history.texts][-1]}
    assert await conversation(sessions) == await sessions.store.messages("ses_1")


async def test_a_long_conversation_of_which_much_has_changed_is_read_whole(sessions: Sessions) -> None:
    for number in range(1, SHORT_HISTORY):
        await put_turn(sessions, number)
    before = await conversation(sessions)
    for number in range(1, queries.MOST_CHANGED + 2):
        await sessions.put(text_part(f"prt_msg_{2 * number}", "ask otherwise", f"msg_{2 * number}"))
    after = await conversation(sessions)
    assert after == await sessions.store.messages("ses_1") != before
    assert after[1] is before[1]


async def test_what_is_removed_of_a_long_conversation_is_gone(sessions: Sessions) -> None:
    for number in range(1, SHORT_HISTORY):
        await put_turn(sessions, number)
    before = await conversation(sessions)

    def remove(tx: SessionTx) -> None:
        tx.remove_message(before[4].info.id)
        tx.remove_part(before[6].info.id, before[6].parts[0].id)

    await sessions.store.write("ses_1", DIRECTORY, remove)
    after = await conversation(sessions)
    assert after == await sessions.store.messages("ses_1")
    assert len(after) == len(before) - 1 and after[5].parts == []


async def test_a_long_conversation_begins_at_its_compaction(sessions: Sessions) -> None:
    for number in range(1, SHORT_HISTORY):
        await put_turn(sessions, number)
    await conversation(sessions)
    await sessions.put(user("msg_compact"), assistant("msg_summary", "msg_compact", summary=True, finish="stop"))
    await put_turn(sessions, SHORT_HISTORY)
    after = await conversation(sessions)
    prompt = f"msg_{2 * SHORT_HISTORY}"
    assert [message.info.id for message in after] == ["msg_compact", "msg_summary", prompt, f"msg_{2 * SHORT_HISTORY + 1}"]
    assert after == (await sessions.store.messages("ses_1"))[-4:]


async def test_no_more_is_kept_than_may_be(sessions: Sessions) -> None:
    for number in range(1, 4):
        await put_turn(sessions, number)
    history = await sessions.store.query(queries.live_history, "ses_1", known={})

    def read(kept: KeptMessages, session_id: str = "ses_1") -> MessageWithParts:
        return kept.read(session_id, history, kept.of(session_id, {}), {})[0]

    kept, too_small = KeptMessages(sum(map(len, history.texts.values()))), KeptMessages(100)
    first = read(kept)
    assert read(kept) is first
    read(kept, "ses_2")
    assert read(kept) is not first, "another conversation has taken its room"
    assert read(too_small) is not read(too_small)


async def test_messages_of_a_deleted_session_are_not_kept(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    await put_turn(sessions, 2)
    kept = ref((await conversation(sessions))[0])
    assert kept() is (await conversation(sessions))[0]
    await sessions.store.write("ses_1", DIRECTORY, lambda tx: tx.delete(tx.session()))
    assert kept() is None
