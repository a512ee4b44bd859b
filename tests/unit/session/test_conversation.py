"""What a turn reads of its session, whatever it has read before."""

from session_parts import DIRECTORY, Sessions, assistant, text_part, user

from app.schema.message import MessageWithParts
from app.schema.part import TextPart


async def conversation(sessions: Sessions) -> list[MessageWithParts]:
    return (await sessions.store.conversation("ses_1")).messages


def texts(messages: list[MessageWithParts]) -> list[list[str]]:
    return [[part.text for part in message.parts if isinstance(part, TextPart)] for message in messages]


async def put_turn(sessions: Sessions, number: int) -> None:
    prompt, answer = f"msg_{2 * number}", f"msg_{2 * number + 1}"
    await sessions.put(user(prompt), text_part(f"prt_{prompt}", f"ask {number}", prompt))
    await sessions.put(assistant(answer, prompt), text_part(f"prt_{answer}", f"said {number}", answer))


async def test_what_has_changed_or_is_gone_is_read_anew(sessions: Sessions) -> None:
    for number in (1, 2):
        await put_turn(sessions, number)
    assert texts(await conversation(sessions)) == [["ask 1"], ["said 1"], ["ask 2"], ["said 2"]]
    await sessions.put(text_part("prt_msg_2", "ask otherwise", "msg_2"), text_part("prt_new", "added", "msg_3"))
    removal = sessions.store.change("ses_1", DIRECTORY)
    removal.remove_message("msg_4")
    removal.remove_part("msg_5", "prt_msg_5")
    await sessions.store.commit(removal)
    assert texts(await conversation(sessions)) == [["ask otherwise"], ["said 1", "added"], []]


async def test_a_part_that_streams_is_as_it_is_now(sessions: Sessions) -> None:
    await put_turn(sessions, 1)
    sessions.store.stream(text_part("prt_live", "streams", "msg_3"), DIRECTORY, "streams")
    await sessions.store.first_writes()
    assert texts(await conversation(sessions)) == [["ask 1"], ["said 1", "streams"]]


async def test_a_conversation_begins_at_its_compaction(sessions: Sessions) -> None:
    for number in range(1, 4):
        await put_turn(sessions, number)
    await sessions.put(user("msg_compact"), assistant("msg_summary", "msg_compact", summary=True, finish="stop"))
    await put_turn(sessions, 4)
    found = await conversation(sessions)
    assert [message.info.id for message in found] == ["msg_compact", "msg_summary", "msg_8", "msg_9"]
    assert found == (await sessions.store.messages("ses_1"))[-4:]
