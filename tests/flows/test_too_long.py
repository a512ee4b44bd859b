"""A conversation that the provider refuses as too long, and one whose tokens nobody counts."""

from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from turns import bash, configured, priced, requests, say, states, talking, texts

from app.providers.base import ModelRequest
from app.providers.estimate import estimate_request
from app.providers.scripted import Fail, Say, ScriptedProvider, ScriptedTurn, SetUsage
from app.schema.message import AssistantTime
from app.sessions.live import compacting
from app.sessions.rows import message_row
from app.sessions.session_tx import SessionTx
from app.turn.compaction import MAX_TRIES, REPEATED_TOKENS
from app.util import ids

TOO_LONG: dict[str, Any] = {"status": 400, "message": "prompt is too long: 208310 tokens > 200000 maximum"}
UNCOUNTED = {"usage": {"input": 0, "output": 0}}
OF_SUMMARIES = "You write the hand-over of a conversation"

SERVED_WITH = {"config": priced()}


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [part["type"] for message in messages for part in message["parts"] if not part["type"].startswith("step")]


async def test_a_refused_conversation_is_summed_up_and_the_turn_goes_on(app: RunningApp, session: str) -> None:
    app.provider.add([say("Paris.")], [TOO_LONG], [say("They asked about France.")], [say("Rome.")])
    await app.prompt(session, "The capital of France?")
    async with app.events() as events:
        answer = await app.prompt(session, "And of Italy?")
        await events.until("session.idle")
        assert "session.error" not in events.types and "session.compacted" in events.types
    assert texts(answer) == ["Rome."]
    messages = await app.messages(session)
    assert kinds(messages) == ["text", "text", "text", "compaction", "text", "text", "text"], "the refused answer is gone"
    assert [message["info"]["role"] for message in messages[2:]] == ["user", "user", "assistant", "user", "assistant"]
    assert messages[3]["parts"][0]["auto"] is True
    *_, continuation = requests(app)[-1].messages
    assert "And of Italy?" in str(continuation), "a prompt that nobody began to answer is put again behind the summary"
    assert "of France?" not in str(continuation)


async def test_files_of_a_prompt_that_is_put_again_are_named(app: RunningApp, session: str) -> None:
    app.provider.add([TOO_LONG], [say("A summary.")], [say("I do not see it.")])
    image = {"type": "file", "mime": "image/png", "filename": "cat.png", "url": "data:image/png;base64,aGk="}
    await app.post(f"/session/{session}/message", {"parts": [image]})
    assert "[cat.png (image/png) was attached. " in str(requests(app)[-1].messages[-1])


async def test_of_a_huge_prompt_only_a_part_is_put_again(app: RunningApp, session: str) -> None:
    app.provider.add([TOO_LONG], [say("A summary.")], [say("Rome.")])
    await app.prompt(session, "begin " + "x" * 100_000 + " end")
    assert estimate_request(requests(app)[-1]) < estimate_request(requests(app)[0])
    text = str(requests(app)[-1].messages[-1])
    assert "begin" in text and "end" in text and len(text) < 5 * REPEATED_TOKENS


async def test_a_second_refusal_in_a_turn_is_stored(app: RunningApp, session: str) -> None:
    long = TOO_LONG | {"body": {"reason": "long"}}
    app.provider.add([long], [say("A summary.")], [TOO_LONG], [TOO_LONG], [say("S.")], [say("On.")])
    async with app.events() as events:
        answer = await app.prompt(session, "Hi")
        await events.until("session.idle")
        assert events.types.count("session.error") == 1
    error = answer["info"]["error"]
    assert (error["name"], error["data"]["message"]) == ("ContextOverflowError", TOO_LONG["message"])
    assert len(requests(app)) == 3, "it is not tried again"
    assert await app.get("/session/status") == {}
    assert texts(await app.prompt(session, "Again")) == ["On."], "the next turn has its own compaction"


async def test_the_body_of_a_refusal_is_stored_with_it(app: RunningApp, session: str) -> None:
    await app.call("PATCH", "/config", {"compaction": {"auto": False}})
    app.provider.add([TOO_LONG | {"body": '{"detail": 1}'}], [say("Fine.")])
    answer = await app.prompt(session, "Hi")
    told = {"message": TOO_LONG["message"], "responseBody": '{"detail": 1}'}
    assert answer["info"]["error"] == {"name": "ContextOverflowError", "data": told}
    assert "completed" in answer["info"]["time"]
    assert texts(await app.prompt(session, "Shorter")) == ["Fine."]


async def test_tools_that_ran_stay_on_the_record_when_their_results_are_too_much(app: RunningApp, session: str) -> None:
    app.provider.add([bash("echo ran > ran; cat ran")], [TOO_LONG], [say("It ran something.")], [say("Done.")])
    answer = await app.prompt(session, "Run it")
    assert texts(answer) == ["Done."]
    assert kinds(await app.messages(session))[:3] == ["text", "tool", "patch"]
    assert "ran" in str(requests(app)[2].messages), "the summary is made of the tools' results too"
    assert "Run it" not in str(requests(app)[-1].messages)


class Refusing(ScriptedProvider):
    """Refuses what it estimates at more than `window` tokens."""

    def __init__(self, window: int) -> None:
        super().__init__(otherwise=self.answer)
        self.window, self.refused = window, 0

    def answer(self, request: ModelRequest) -> ScriptedTurn:
        if estimate_request(request) > self.window:
            self.refused += 1
            return (Fail(400, message="maximum context length is exceeded"),)
        said = "A summary." if any(text.startswith(OF_SUMMARIES) for text in request.system) else "Answered."
        return (Say(said), SetUsage({"input": 10}))


@pytest.mark.parametrize("known", [True, False], ids=["the window is known", "nobody said how large the window is"])
async def test_a_summary_is_made_of_less_until_it_fits(tmp_path: Path, known: bool) -> None:
    refusing = Refusing(1_000_000)
    limit = {"context": 16_000 if known else 0, "output": 1_000}
    async with talking(tmp_path, config=priced(limit=limit), provider=refusing) as (app, session):
        for number in range(6):
            await app.prompt(session, f"Request number {number}: " + "lorem ipsum " * 1_000)
        refusing.window = 12_000
        answer = await app.prompt(session, "And now?")
        assert texts(answer) == ["Answered."]
        assert 1 <= refusing.refused <= 1 + MAX_TRIES
        asked = next(one for one in reversed(requests(app)) if one.system[0].startswith(OF_SUMMARIES))
        assert "And now?" in str(asked.messages), "the newest stays"
        assert "Request number 0" in str(asked.messages), "of the oldest what the user said stays"
        assert sum(message["info"].get("summary") is True for message in await app.messages(session)) == 1


async def test_a_summary_that_never_fits_leaves_the_session_usable(tmp_path: Path) -> None:
    refusing = Refusing(0)
    async with talking(tmp_path, config=priced(), provider=refusing) as (app, session):
        answer = await app.prompt(session, "Hi")
        assert answer["info"]["error"]["name"] == "ContextOverflowError"
        assert answer["info"]["summary"] is True
        assert refusing.refused == 1 + MAX_TRIES
        assert "compacting" not in (await app.get(f"/session/{session}"))["time"]
        refusing.window = 1_000_000
        assert texts(await app.prompt(session, "Still there?")) == ["Answered."]


async def test_where_no_usage_is_reported_the_window_s_fill_is_estimated(tmp_path: Path) -> None:
    async with talking(tmp_path, config=priced(limit={"context": 20_000, "output": 1_000})) as (app, session):
        app.provider.add([say("Short."), UNCOUNTED], [say("word " * 12_000), UNCOUNTED], [say("A summary.")], [say("On.")])
        await app.prompt(session, "One")
        assert len(await app.messages(session)) == 2
        assert texts(await app.prompt(session, "Two")) == ["On."]
        assert len(await app.messages(session)) == 8


async def test_a_compaction_that_a_killed_server_was_at_is_not_shown_by_the_next_one(tmp_path: Path) -> None:
    directory = configured(tmp_path, priced())
    async with talking(tmp_path, workspace=directory) as (app, session):
        app.provider.add([say("Paris.")])
        await app.prompt(session, "The capital of France?")
        store = app.services.store
        info = (await store.session_and_messages(session))[1][-1].info
        open_summary = info.model_copy(update={"id": ids.ascending("message"), "summary": True, "finish": None})
        open_summary.time = AssistantTime(created=1)

        def begin(tx: SessionTx) -> None:
            tx.put_message(message_row(open_summary))
            tx.edit(lambda session: compacting(session, since=1))

        await store.write(session, str(directory), begin)
    async with running_app(tmp_path, workspace=directory) as app:
        assert "compacting" not in (await app.get(f"/session/{session}"))["time"]
        assert "error" in (await app.messages(session))[-1]["info"]


TWELVE_THOUSAND = 48_000
"""Characters of as many tokens."""


@pytest.mark.parametrize(
    ("setting", "flag", "pruned"),
    [({}, "", 4), ({"compaction": {"prune": False}}, "", 0), ({}, "1", 0)],
    ids=["on", "switched off by the configuration", "switched off by the flag"],
)
async def test_old_outputs_are_pruned_after_a_turn_unless_that_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], flag: str, pruned: int
) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_PRUNE", flag)
    config = {**priced(limit={"context": 100_000, "output": 8_000}), **setting}
    async with talking(tmp_path, config=config) as (app, session):
        app.provider.add([bash(f"printf '%{TWELVE_THOUSAND}s' {number}") for number in range(7)])
        app.provider.add(*[[say("Done.")]] * 4)
        for prompt in ("Print", "Thanks", "Really"):
            await app.prompt(session, prompt)
            found = await states(app, session)
            done = pruned if prompt == "Really" else 0
            assert ["compacted" in state["time"] for state in found] == [True] * done + [False] * (7 - done), prompt
        assert all(len(state["output"]) == TWELVE_THOUSAND for state in found), "the record keeps them"
        await app.prompt(session, "Go on")
        assert str(requests(app)[-1].messages).count("[Old tool result content cleared]") == pruned
