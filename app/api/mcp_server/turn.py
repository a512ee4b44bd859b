"""A turn of a session, followed until it ends, asks something, or the caller has waited long enough."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

import anyio

from app.api.client import ApiClient, ApiRefused, Json, PromptOutcome, SessionFamily, error_text, shortened
from app.util import ids

Report = Callable[[str], Awaitable[None]]
"""Is given a line about what happens."""

ABORT_SECONDS = 10.0
_ASKED = ("permission.asked", "question.asked")


class FollowedTurn:
    def __init__(self, api: ApiClient, session: Json, report: Report) -> None:
        self._api = api
        self._id, self._directory = session["id"], session["directory"]
        self._report = report
        self._last_line = ""
        self._family = SessionFamily(api, session["id"])

    async def prompt(self, prompt: Json, seconds: float | None) -> Json:
        """Aborts the turn when this call is cancelled: nobody waits for it any more. Raises ApiRefused."""
        message_id = ids.ascending("message")
        async with aclosing(self._api.events(self._directory)) as events:
            await anext(events)  # the greeting: no event is missed from here on
            try:
                await self._api.post(f"/session/{self._id}/prompt_async", {"messageID": message_id, **prompt})
                return await self._state(events, PromptOutcome(self._id, message_id), seconds)
            except asyncio.CancelledError:
                with anyio.move_on_after(ABORT_SECONDS, shield=True), suppress(ApiRefused):  # a server that is gone runs nothing
                    await self._api.post(f"/session/{self._id}/abort")
                raise

    async def wait(self, seconds: float | None) -> Json:
        """Waits for the turn that runs, if one does. Raises ApiRefused."""
        async with aclosing(self._api.events(self._directory)) as events:
            await anext(events)
            if await self._is_busy():
                return await self._state(events, PromptOutcome(self._id), seconds)
        return await self._ended()

    async def _is_busy(self) -> bool:
        return self._id in await self._api.get("/session/status", directory=self._directory)

    async def _state(self, events: AsyncIterator[Json], outcome: PromptOutcome, seconds: float | None) -> Json:
        try:
            async with asyncio.timeout(seconds):
                asked = await self._follow(events, outcome)
        except TimeoutError:
            return {"sessionID": self._id, "state": "running"}
        return {"sessionID": self._id, "state": "asking", **asked} if asked else await self._ended()

    async def _follow(self, events: AsyncIterator[Json], outcome: PromptOutcome) -> Json:
        """Follows the turn until it asks the user something or is over. Returns what it asks; empty when it is over."""
        asked = await self._waiting_requests()
        while not asked:
            event = await anext(events)
            await self._report_on(event)
            outcome.note(event)
            if outcome.is_known or (event["type"] == "server.resync" and not await self._is_busy()):
                break
            if event["type"] in _ASKED:
                asked = await self._waiting_requests()
        return asked

    async def _ended(self) -> Json:
        """The state after the turn, with the newest message if it is the agent's. Raises ApiRefused with the error of a turn that
        failed."""
        state = {"sessionID": self._id, "state": "idle"}
        for message in await self._api.get(f"/session/{self._id}/message", limit=1):
            info, error = message["info"], message["info"].get("error")
            if error and error["name"] != "MessageAbortedError":
                raise ApiRefused(f"The turn failed: {error_text(error)}")
            if info["role"] == "assistant":
                state.update(messageID=info["id"], text=text_of(message), **({"state": "aborted"} if error else {}))
        return state

    # What the agent asks and does.

    async def _waiting_requests(self) -> Json:
        """The waiting requests of this session and its subagents."""
        found = await waiting_requests(self._api, self._directory)
        of_family = {kind: [each for each in all_ if await self._family.has(each["sessionID"])] for kind, all_ in found.items()}
        return {kind: requests for kind, requests in of_family.items() if requests}

    async def _report_on(self, event: Json) -> None:
        line = self._line(event)
        if line and (line != self._last_line or event["type"] == "server.heartbeat"):
            self._last_line = line
            await self._report(line)

    def _line(self, event: Json) -> str:
        """Heartbeats give a line too: some clients give up a call that reports nothing for a minute."""
        if event["type"] == "server.heartbeat":
            return "The agent works."
        part = event["properties"].get("part") if event["type"] == "message.part.updated" else None
        return line_of(part) if part and self._family.known.get(part["sessionID"]) else ""


async def waiting_requests(api: ApiClient, directory: str | None) -> dict[str, list[Json]]:
    """The directory's requests that wait for an answer, by kind."""
    where = {"directory": directory} if directory else {}
    return {f"{kind}s": await api.get(f"/{kind}", **where) for kind in ("permission", "question")}


def text_of(message: Json) -> str:
    return "\n".join(part["text"] for part in message["parts"] if part["type"] == "text" and not part.get("synthetic"))


def line_of(part: Json) -> str:
    """A line about a tool call, or about a text that is finished. Empty for other parts."""
    text = ""
    if part["type"] == "tool" and part["state"]["status"] != "pending":
        text = f"{part['tool']} ({part['state']['status']}): {part['state'].get('title') or ''}".removesuffix(": ")
    elif part["type"] == "text" and (part.get("time") or {}).get("end"):
        text = part["text"]
    return shortened(text)
