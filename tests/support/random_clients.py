"""Clients that do random things with a few sessions, over real connections, and remember what they were told."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from event_fold import EventFold, KnownMessage
from keyword_server import TURNS

SESSIONS = 10
MODEL = {"providerID": "scripted", "modelID": "rules"}
ALLOWED = {200, 204, 404, 409}


@dataclass(frozen=True)
class SentPrompt:
    session: str
    id: str
    text: str
    answered: bool
    """False: it was sent with `noReply`."""


@dataclass
class ClientLog:
    """What the clients were told, and what is wrong with it."""

    sessions: set[str] = field(default_factory=set)
    prompts: list[SentPrompt] = field(default_factory=list)
    patched: set[str] = field(default_factory=set)
    """Parts that clients put, which adds those that are not there."""
    cut: set[int] = field(default_factory=set)
    """Answers that were reverted from one of their parts on, by the time of their creation, which a fork keeps: the end of the
    step goes with the next prompt."""
    sent_twice: set[str] = field(default_factory=set)
    failed: list[tuple[SentPrompt, dict[str, Any]]] = field(default_factory=list)
    """Prompts that were answered with an error instead of a message, which a 200 had announced."""
    facts: list[tuple[str, ...]] = field(default_factory=list)
    """What was acknowledged and must have been announced."""
    removed: list[tuple[str, str]] = field(default_factory=list)
    doomed: set[str] = field(default_factory=set)
    """Sessions whose deletion was asked for."""
    deleted: set[str] = field(default_factory=set)
    replies: Counter[str] = field(default_factory=Counter)
    pages: list[tuple[str, list[str]]] = field(default_factory=list)
    """Sessions, with the ids of the messages in the order in which they were read."""
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    history: dict[str, list[str]] = field(default_factory=dict)


class RandomClients:
    """`refused`: statuses that a server whose database refuses may answer beside the usual ones."""

    def __init__(self, http: httpx2.AsyncClient, fold: EventFold, seed: int, refused: frozenset[int] = frozenset()) -> None:
        self.log = ClientLog()
        self._http = http
        self._fold = fold
        self._seed = seed
        self._refused = refused
        self._places: list[str] = []
        self._count = 0
        self._began = time.monotonic()

    async def run(self, count: int, seconds: float) -> None:
        """Returns when every client has ended what it did last."""
        while len(self._places) < SESSIONS:
            await self._create(len(self._places))
        self._began = time.monotonic()
        stop = self._began + seconds
        person = asyncio.create_task(self._answer_all(random.Random(f"{self._seed}.person")))
        async with asyncio.TaskGroup() as clients:
            for number in range(count):
                clients.create_task(self._work(random.Random(f"{self._seed}.{number}"), stop))
        person.cancel()
        await asyncio.gather(person, return_exceptions=True)

    async def _work(self, rng: random.Random, stop: float) -> None:
        actions, weights = list(_ACTIONS), list(_ACTIONS.values())
        while time.monotonic() < stop:
            (action,) = rng.choices(actions, weights)
            await action(self, rng, rng.choice(self._places))
            await asyncio.sleep(rng.random() ** 2 * 0.1)

    async def _call(self, method: str, session: str, path: str = "", body: Any = None) -> httpx2.Response | None:
        """`path` is below the session, if one is named. None when the answer is not a success."""
        began, name = time.monotonic() - self._began, f"{method} {path}"
        try:
            response = await self._http.request(method, f"/session/{session}{path}" if session else path, json=body)
        except httpx2.TransportError as error:
            self.log.wrong.append(f"{session} {began:.3f} {name} {body or ''} → {error!r}")
            return None
        line = f"{began:7.3f}-{time.monotonic() - self._began:7.3f} {name} {str(body or '')[:120]}"
        self.log.history.setdefault(session, []).append(f"{line} → {response.status_code} {response.text.strip()[:100]}")
        self.log.counts[f"{'/'.join(name.split('/')[:2])} {response.status_code}"] += 1
        if response.status_code not in ALLOWED | self._refused:
            self.log.wrong.append(f"{session} {line} → {response.status_code} {response.text[:300]}")
        # A message, a part or a link may be gone by then.
        names_more = path.startswith("/message/") or path in ("/fork", "/revert", "/share")
        sent_before = isinstance(body, dict) and body.get("messageID") in self.log.sent_twice
        if response.status_code == 404 and session not in {"", *self.log.doomed} and not (names_more or sent_before):
            self.log.wrong.append(f"{session} {line} → 404, and the session is there")
        return response if response.is_success else None

    async def _create(self, place: int) -> None:
        response = await self._call("POST", "", "/session", {"title": f"Session {place}"})
        if response is not None:
            session = response.json()["id"]
            self.log.sessions.add(session)
            self.log.facts.append(("session", session))
            self._places[place : place + 1] = [session]

    def _message(self, rng: random.Random, session: str) -> KnownMessage | None:
        known = self._fold.sessions.get(session)
        messages = list(known.messages.values()) if known else []
        return rng.choice(messages[-6:]) if messages else None

    def _part(self, rng: random.Random, message: KnownMessage | None, *kinds: str) -> dict[str, Any] | None:
        parts = [part for part in message.parts.values() if part["type"] in kinds] if message else []
        return rng.choice(parts) if parts else None

    # Prompts.

    def _prompt_body(self, rng: random.Random) -> dict[str, Any]:
        self._count += 1
        text = f"do {rng.choice(['fast', *TURNS])} {self._count}"
        return {"messageID": f"msg_{self._seed:04x}{self._count:08x}", "parts": [{"type": "text", "text": text}]}

    async def _send(self, session: str, path: str, body: dict[str, Any]) -> None:
        if (response := await self._call("POST", session, f"/{path}", body)) is None:
            return
        prompt = SentPrompt(session, body["messageID"], body["parts"][0]["text"], not body.get("noReply"))
        self.log.prompts.append(prompt)
        if path == "message" and prompt.answered:
            self._check_answer(prompt, response.json())

    def _check_answer(self, prompt: SentPrompt, answer: dict[str, Any]) -> None:
        if "name" in answer:
            self.log.counts[f"answered with {answer['name']}"] += 1
            self.log.failed.append((prompt, answer))
        elif answer["info"]["role"] != "assistant" or "completed" not in answer["info"]["time"]:
            self.log.wrong.append(f"{prompt} was answered with {answer}")

    async def _prompt(self, rng: random.Random, session: str) -> None:
        way = rng.choices(["message", "prompt_async", "keep"], [5, 5, 3])[0]
        body = {**self._prompt_body(rng), **({"noReply": True} if way == "keep" else {})}
        await self._send(session, way.replace("keep", "message"), body)

    async def _prompt_and_leave(self, rng: random.Random, session: str) -> None:
        """The client hangs up before the answer."""
        body = self._prompt_body(rng)
        try:
            async with asyncio.timeout(rng.random() * 0.3):
                await self._send(session, "message", body)
        except TimeoutError:
            self.log.history.setdefault(session, []).append(f"hung up on {body['messageID']}")

    async def _prompts_at_once(self, rng: random.Random, session: str) -> None:
        bodies = [self._prompt_body(rng) for _ in range(3)]
        await asyncio.gather(*(self._send(session, "prompt_async", body) for body in bodies))

    async def _prompt_twice(self, rng: random.Random, session: str) -> None:
        body = self._prompt_body(rng)
        self.log.sent_twice.add(body["messageID"])
        way = rng.choice(["message", "prompt_async"])
        await asyncio.gather(*(self._send(session, way, body) for _ in range(2)))

    async def _prompt_then_abort(self, rng: random.Random, session: str) -> None:
        await self._send(session, "prompt_async", self._prompt_body(rng))
        await asyncio.sleep(rng.random() ** 2 * 0.2)
        await self._call("POST", session, "/abort")

    async def _prompt_then_delete(self, rng: random.Random, session: str) -> None:
        """The message, right after its prompt was accepted."""
        body = self._prompt_body(rng)
        await self._send(session, "prompt_async", body)
        await self._remove_message(session, body["messageID"])

    # What is done to a session.

    async def _simple(self, rng: random.Random, session: str) -> None:
        """What nothing is remembered of."""
        method, path = rng.choice([*[("POST", "/abort"), ("POST", "/unrevert")] * 6, ("POST", "/share"), ("DELETE", "/share")])
        await self._call(method, session, path)

    async def _fork(self, rng: random.Random, session: str) -> None:
        place, message = self._places.index(session), self._message(rng, session)
        body = {"messageID": message.info["id"]} if message and rng.random() < 0.5 else {}
        response = await self._call("POST", session, "/fork", body)
        if response is not None:
            forked = response.json()["id"]
            self.log.sessions.add(forked)
            self.log.facts.append(("session", forked))
            self._places[place] = forked

    async def _revert(self, rng: random.Random, session: str) -> None:
        message = self._message(rng, session)
        part = self._part(rng, message, "text", "tool") if rng.random() < 0.3 else None
        if message is not None:
            body = {"messageID": message.info["id"], **({"partID": part["id"]} if part else {})}
            if part:
                self.log.cut.add(message.info["time"]["created"])
            await self._call("POST", session, "/revert", body)

    async def _summarize(self, rng: random.Random, session: str) -> None:
        await self._call("POST", session, "/summarize", MODEL)

    async def _shell(self, rng: random.Random, session: str) -> None:
        body = {"agent": "build", "command": f"echo shell {rng.random()}"}
        response = await self._call("POST", session, "/shell", body)
        if response is not None:
            self.log.facts.append(("message", session, response.json()["info"]["id"]))

    async def _rename(self, rng: random.Random, session: str) -> None:
        title = f"Title {rng.random()}"
        if await self._call("PATCH", session, "", {"title": title}):
            self.log.facts.append(("title", session, title))

    async def _delete_session(self, rng: random.Random, session: str) -> None:
        place = self._places.index(session)
        self.log.doomed.add(session)
        if await self._call("DELETE", session):
            self.log.deleted.add(session)
            await self._create(place)

    # What is done to messages and parts.

    async def _delete_message(self, rng: random.Random, session: str) -> None:
        message = self._message(rng, session)
        if message is not None:
            await self._remove_message(session, message.info["id"])

    async def _remove_message(self, session: str, message: str) -> None:
        if await self._call("DELETE", session, f"/message/{message}"):
            self.log.removed.append((session, message))

    async def _delete_part(self, rng: random.Random, session: str) -> None:
        message = self._message(rng, session)
        part = self._part(rng, message, "text", "reasoning")
        if message is None or part is None:
            return
        if await self._call("DELETE", session, f"/message/{message.info['id']}/part/{part['id']}"):
            self.log.removed.append((session, part["id"]))

    async def _patch_part(self, rng: random.Random, session: str) -> None:
        message = self._message(rng, session)
        part = self._part(rng, message, "text")
        if message is not None and part is not None:
            text = f"Patched {rng.random()}"
            body = {**part, "messageID": message.info["id"], "sessionID": session, "text": text}
            self.log.patched.add(part["id"])
            if await self._call("PATCH", session, f"/message/{message.info['id']}/part/{part['id']}", body):
                self.log.facts.append(("part", part["id"], text))

    async def _read(self, rng: random.Random, session: str) -> None:
        response = await self._call("GET", session, "/message" + rng.choice(["", "?limit=5"]))
        if response is not None:
            self.log.pages.append((session, [message["info"]["id"] for message in response.json()]))

    # What waits for a person.

    async def _answer_all(self, rng: random.Random) -> None:
        """The clients may all wait for turns that wait for an answer."""
        while True:
            await asyncio.sleep(0.3)
            await self._reply(rng, "")

    async def _reply(self, rng: random.Random, _session: str) -> None:
        """At times two answers at one moment."""
        if not self._fold.waiting:
            return
        request = rng.choice(list(self._fold.waiting))
        replies = rng.choices(["once", "reject", "always"], [20, 10, 1], k=rng.choice([1, 2]))
        await asyncio.gather(*(self.answer(request, reply) for reply in replies))

    async def answer(self, request: str, reply: str = "reject") -> None:
        if request.startswith("que"):
            way, body = ("reject", None) if reply == "reject" else ("reply", {"answers": [["A"]]})
            accepted = await self._call("POST", "", f"/question/{request}/{way}", body)
        else:
            accepted = await self._call("POST", "", f"/permission/{request}/reply", {"reply": reply})
        if accepted is not None:
            self.log.replies[request] += 1


_ACTIONS: dict[Callable[[RandomClients, random.Random, str], Awaitable[None]], int] = {
    RandomClients._prompt: 13,
    RandomClients._prompt_and_leave: 2,
    RandomClients._prompts_at_once: 2,
    RandomClients._prompt_twice: 2,
    RandomClients._prompt_then_abort: 3,
    RandomClients._prompt_then_delete: 2,
    RandomClients._simple: 7,
    RandomClients._fork: 3,
    RandomClients._revert: 4,
    RandomClients._summarize: 2,
    RandomClients._shell: 2,
    RandomClients._rename: 3,
    RandomClients._delete_session: 3,
    RandomClients._delete_message: 4,
    RandomClients._delete_part: 2,
    RandomClients._patch_part: 2,
    RandomClients._read: 6,
    RandomClients._reply: 12,
}
