"""Moments of a session's work on replica A at which a fault meets it, and what must have become of it in the end."""

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any

import httpx2
from killable import Client
from polling import until
from prompted_model import play
from replica_turns import (
    QUESTION,
    asked,
    let_go,
    messages,
    new_session,
    ran,
    request,
    streaming,
    wait_until_stored,
    waits,
)
from replicas import Replicas
from turns import assert_finished, bash, say, task, texts, tools

FILES = 600
MOMENTS: list[type["Moment"]] = []

_numbers = count()


class Moment:
    """`reach` brings the session there, `strike` is what happens right before the fault, `go_on` what people do after it, at
    other replicas; `check` is asked when all is idle. `said` is the last answer in the end."""

    name = ""
    said = "Done."

    def __init_subclass__(cls) -> None:
        MOMENTS.append(cls)

    def __init__(self, replicas: Replicas, clients: list[Client]) -> None:
        self.replicas, self.clients = replicas, clients
        self.a, self.b, self.c = clients
        self.key = f"{self.name}-{next(_numbers)}"
        self.session = ""
        self._tasks: list[asyncio.Task[Any]] = []

    async def create(self) -> None:
        self.session = await new_session(self.a)

    async def reach(self) -> None:
        """What takes time."""

    async def strike(self) -> None:
        """What is over at once."""

    async def go_on(self) -> None:
        """What a person does who is waited for."""

    async def check(self, interrupts: bool) -> None:
        """`interrupts`: the fault ends what runs on A, so that another replica must have taken over."""
        found = await self.same_everywhere()
        assert_finished(found)
        assert found[-1]["info"]["role"] == "assistant", "the last message is no answer"
        assert "error" not in found[-1]["info"], f"the last answer has an error: {found[-1]['info']['error']}"
        assert texts(found[-1])[-1:] == [self.said], f"the last answer says {texts(found[-1])}"

    async def same_everywhere(self) -> list[dict[str, Any]]:
        read = [await messages(client, self.session) for client in self.clients]
        assert read[0] == read[1] == read[2], "replicas show different messages"
        return read[0]

    async def end(self) -> None:
        """What clients of A waited for has been answered, or its connection has gone."""
        await asyncio.wait_for(asyncio.gather(*self._tasks, return_exceptions=True), 30) if self._tasks else None

    def later(self, client: Client, path: str, body: Any) -> asyncio.Task[Any]:
        """A request whose connection may break."""
        self._tasks.append(asyncio.create_task(client.http.post(f"/session/{self.session}/{path}", json=body)))
        return self._tasks[-1]

    async def prompt(self, text: str) -> None:
        assert await self.a.prompt(self.session, text, "prompt_async") is True

    async def call(self) -> dict[str, Any]:
        """The state of the one call of a tool."""
        (called,) = tools(await messages(self.b, self.session))
        return called["state"]

    def times_run(self) -> int:
        return ran(self.replicas, self.key)


class Committed(Moment):
    """A prompt has just been accepted."""

    name, said = "committed", "It was committed."

    async def strike(self) -> None:
        await self.prompt(play([say(self.said)]))

    async def check(self, interrupts: bool) -> None:
        await super().check(interrupts)
        found = await messages(self.b, self.session)
        answers = [message for message in found if texts(message)[-1:] == [self.said]]
        assert len(answers) == 1, f"{len(answers)} answers to one prompt"


class Streaming(Moment):
    """Half of an answer has been shown."""

    name, said = "streaming", "Half of it, and the rest."

    async def reach(self) -> None:
        await self.prompt(streaming(self.key))
        await wait_until_stored(self.a, self.session, "Half")


class Tool(Moment):
    """A command runs."""

    name = "tool"

    async def reach(self) -> None:
        await self.prompt(play([bash(waits(self.key))], [say("Done.")]))
        await wait_until_stored(self.a, self.session, f"began {self.key}")

    async def go_on(self) -> None:
        let_go(self.replicas, self.key)

    async def check(self, interrupts: bool) -> None:
        await super().check(interrupts)
        assert self.times_run() == 1, f"the command ran {self.times_run()} times"
        state = await self.call()
        assert state["status"] == ("error" if interrupts else "completed"), state


class Asking(Moment):
    """A permission request waits for its answer."""

    name, said = "permission", "So be it."
    kind = "permission"

    async def reach(self) -> None:
        await self.prompt(play([self.step()], [say(self.said)]))
        self.asked = await asked(self.a, self.session, self.kind)

    def step(self) -> dict[str, Any]:
        return bash(f"make > /dev/null; echo {self.key} >> log.txt")

    async def go_on(self) -> None:
        for client in (self.b, self.c):
            assert self.asked in await client.get(f"/{self.kind}"), "the request is not listed any more"
        assert await self.reply(self.c) == 200

    async def reply(self, client: Client) -> int:
        body = {"answers": [["B"]]} if self.kind == "question" else {"reply": "once"}
        return await request(client, "POST", f"/{self.kind}/{self.asked['id']}/reply", body)

    async def check(self, interrupts: bool) -> None:
        await super().check(interrupts)
        assert self.times_run() == 1, f"the command ran {self.times_run()} times"


class AskingQuestion(Asking):
    """A question waits for its answer."""

    name, kind = "question", "question"

    def step(self) -> dict[str, Any]:
        return QUESTION

    async def check(self, interrupts: bool) -> None:
        await Moment.check(self, interrupts)
        state = await self.call()
        assert state["metadata"]["answers"] == [["B"]], state


class Answered(Asking):
    """A permission request has just been answered on B, and its command may or may not have begun."""

    name = "answered"

    async def strike(self) -> None:
        assert (status := await self.reply(self.b)) == 200, f"the reply was answered with {status}"

    async def go_on(self) -> None:
        for client in (self.b, self.c):
            assert self.asked not in await client.get("/permission"), "it is asked again"

    async def check(self, interrupts: bool) -> None:
        await Moment.check(self, interrupts)
        assert self.times_run() <= 1, f"the command ran {self.times_run()} times"
        if (await self.call())["status"] == "completed":
            assert self.times_run() == 1, "the command is said to have run"


class Compaction(Moment):
    """A summary is being written."""

    name = "compaction"

    async def reach(self) -> None:
        await self.a.prompt(self.session, play([say("Hi.")], [say("In short:", chunks=1), {"hold": self.key}, say(" hi.")]))
        self.later(self.a, "summarize", {"providerID": "fake", "modelID": "main"})
        await wait_until_stored(self.a, self.session, "In short")

    async def check(self, interrupts: bool) -> None:
        found = await self.same_everywhere()
        assert_finished(found)
        summaries = [message for message in found if message["info"].get("summary") and "error" not in message["info"]]
        assert [texts(summary)[-1] for summary in summaries] == ["In short: hi."], "there is no summary"
        assert "compacting" not in (await self.c.get(f"/session/{self.session}"))["time"], "it is still compacting"


class Reverting(Moment):
    """Files are being put back: either all of them are in the end, or none."""

    name = "revert"

    async def reach(self) -> None:
        folder, numbers = self.key, f"$(seq {FILES})"
        make = f"mkdir {folder}; for i in {numbers}; do echo original > {folder}/$i; done"
        change = f"for i in {numbers}; do echo changed > {folder}/$i; done"
        for command in (make, change):
            self.message = (await self.a.prompt(self.session, play([bash(command)], [say("Done.")])))["info"]["parentID"]

    async def strike(self) -> None:
        self.later(self.a, "revert", {"messageID": self.message})
        halfway = self.replicas.workspace / self.key / str(FILES // 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                while halfway.read_text() != "original\n":
                    await asyncio.sleep(0.001)

    async def _is_finished(self) -> bool:
        revert = (await self.c.get(f"/session/{self.session}")).get("revert")
        return not (revert and revert.get("unfinished"))

    async def check(self, interrupts: bool) -> None:
        async with asyncio.timeout(30):  # no status tells of a revert
            while not await self._is_finished():
                await asyncio.sleep(0.1)
        found = await self.same_everywhere()
        assert len(found) == 6, f"{len(found)} messages are left"
        revert = (await self.c.get(f"/session/{self.session}")).get("revert")
        statuses = [task.result().status_code for task in self._tasks if task.done() and not task.exception()]
        assert revert or statuses != [200], "the revert was acknowledged and is lost"
        files = list((self.replicas.workspace / self.key).iterdir())
        assert len(files) == FILES, f"{len(files)} files are there"
        original = sum(file.read_text() == "original\n" for file in files)
        assert original == (FILES if revert else 0), f"{original} of {FILES} files are put back"


class Subagent(Tool):
    """A subagent runs a command."""

    name = "subagent"

    async def reach(self) -> None:
        await self.prompt(play([task(play([bash(waits(self.key))], [say("In the task.")]))], [say("Done.")]))
        await until(self.times_run)

    async def check(self, interrupts: bool) -> None:
        await super().check(interrupts)
        (child,) = await self.b.get(f"/session/{self.session}/children")
        assert_finished(await messages(self.b, child["id"]))


class Load(Moment):
    """A client prompts all replicas in turn, and goes to the next one where it is refused."""

    name = "load"
    said = "ok"

    async def strike(self) -> None:
        self._stopped = False
        self._accepted: list[str] = []
        self._count = 0
        self._loop = asyncio.create_task(self._prompt())

    async def _prompt(self) -> None:
        while not self._stopped:
            message = f"msg_{self.key}_{self._count}"
            await self._accept({"messageID": message, "parts": [{"type": "text", "text": message}]})
            self._accepted.append(message)
            await asyncio.sleep(0.05)

    async def _accept(self, body: dict[str, Any]) -> None:
        """The same message is sent until a replica takes it."""
        async with asyncio.timeout(60):
            while True:
                self._count += 1
                client = self.clients[self._count % 3]
                try:
                    response = await client.http.post(f"/session/{self.session}/prompt_async", json=body, timeout=2)
                except httpx2.HTTPError:
                    continue
                if response.status_code == 204:
                    return
                assert response.status_code in (429, 503), f"a prompt is answered with {response.status_code}"
                await asyncio.sleep(0.05)

    async def go_on(self) -> None:
        await asyncio.sleep(0.5)
        self._stopped = True
        await self._loop

    async def check(self, interrupts: bool) -> None:
        await super().check(interrupts)
        found = await messages(self.b, self.session)
        prompts = [message["info"]["id"] for message in found if message["info"]["role"] == "user"]
        assert prompts == self._accepted, f"{len(self._accepted)} prompts were accepted, {len(prompts)} are stored"
        broken = [message["info"]["error"] for message in found if "error" in message["info"]]
        assert not broken, f"{len(broken)} answers have an error: {broken[0]}"
