"""The second API's sessions: prompts, messages and numbered events, as OpenCode 1.18 tells them."""

from pathlib import Path
from typing import Any

from running_app import RunningApp, running_app

READ = {"tool": "read", "args": {"filePath": "a.txt"}}
STEP = ["session.next.step.started", "session.next.text.started", "session.next.text.ended", "session.next.step.ended"]
PROMPTED = ["session.next.prompt.admitted", "session.next.prompted"]


async def create(app: RunningApp, **fields: Any) -> str:
    created = await app.post("/api/session", fields)
    return str(created["data"]["id"])


async def prompt(app: RunningApp, session_id: str, text: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await app.post(
        f"/api/session/{session_id}/prompt", {"prompt": {"text": text}, **fields}, expect=expect
    )
    return answer["data"] if expect == 200 else answer


async def wait(app: RunningApp, session_id: str) -> None:
    await app.post(f"/api/session/{session_id}/wait", expect=204)


async def messages(app: RunningApp, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await app.get(f"/api/session/{session_id}/message?order=asc"))["data"]
    return found


async def history(app: RunningApp, session_id: str, after: int = 0, limit: int = 100) -> dict[str, Any]:
    page: dict[str, Any] = await app.get(f"/api/session/{session_id}/history?after={after}&limit={limit}")
    return page


async def test_a_prompt_is_admitted_answered_and_told_in_events(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Hello."}]]) as app:
        session = await create(app)
        async with app.events(f"/api/session/{session}/event") as events:
            admitted = await prompt(app, session, "Hi")
            await events.until("session.next.step.ended")
        await wait(app, session)
        user, assistant = await messages(app, session)
        told = (await history(app, session))["data"]

    assert [event.data for event in events.seen] == told
    assert [event["type"] for event in told] == [*PROMPTED, *STEP]
    assert told[0]["durable"] == {"aggregateID": session, "seq": admitted["admittedSeq"], "version": 1}
    assert [event["durable"]["seq"] for event in told] == sorted({event["durable"]["seq"] for event in told})
    assert (admitted["id"], admitted["prompt"], admitted["delivery"]) == (user["id"], {"text": "Hi"}, "steer")
    assert (user["type"], user["text"]) == ("user", "Hi")
    assert (assistant["type"], assistant["finish"]) == ("assistant", "stop")
    assert [(part["type"], part["text"]) for part in assistant["content"]] == [("text", "Hello.")]
    assert told[-2]["data"]["text"] == "Hello."
    assert told[-2]["data"]["textID"] == assistant["content"][0]["id"]
