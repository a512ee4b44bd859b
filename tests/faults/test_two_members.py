"""Two members at work at once: nothing that one of them receives tells of the other."""

import asyncio
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from long_form import LONG
from running_app import RunningApp, make_workspace, running_app, text_part
from user_logins import user

from app.providers.base import ModelRequest
from app.providers.scripted import ScriptedTurn, parse_turn

WORK_SECONDS = 60.0 if LONG else 4.0
LOOKS = 400 if LONG else 60
"""At a session of another member and at one that never was."""
ALIKE = 2.0
"""The medians of both may differ by this factor: a class of timing would differ by more, and other tests run beside this one."""
_MARK = re.compile(r"marked-secret-of-(\w+)")


@dataclass
class Member:
    """`received`: every byte of answers, headers and streams, as text."""

    name: str
    app: RunningApp
    directory: Path
    random: random.Random
    sessions: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.mark = f"marked-secret-of-{self.name}"

    async def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        response = await self.app.client.request(method, path, json=body)
        self.received += [str(response.headers), response.text]
        self.statuses.add(response.status_code)
        return response

    def one(self) -> str:
        return self.random.choice(self.sessions)

    # What a member does.

    async def create(self) -> None:
        allow = [{"permission": "*", "pattern": "*", "action": self.random.choice(["allow", "ask"])}]
        created = await self.ask("POST", "/session", {"title": f"title {self.mark}", "permission": allow})
        self.sessions.append(created.json()["id"])

    async def prompt(self) -> None:
        await self.ask("POST", f"/session/{self.one()}/prompt_async", {"parts": [text_part(f"prompt {self.mark}")]})

    async def reply(self) -> None:
        for request in (await self.ask("GET", "/permission")).json():
            answer = {"reply": self.random.choice(["once", "always", "reject"])}
            await self.ask("POST", f"/permission/{request['id']}/reply", answer)

    async def write_a_file(self) -> None:
        (self.directory / f"{self.mark}.txt").write_text(f"file {self.mark} {self.random.random()}")

    async def shell(self) -> None:
        await self.ask("POST", f"/session/{self.one()}/shell", {"agent": "build", "command": "cat *.txt; ls; pwd"})

    async def read(self) -> None:
        session = self.one()
        paths = [
            "/session", f"/session?search={self.mark[:12]}", "/session?limit=3", "/session/status", "/permission", "/question",
            "/project", "/project/current", "/path", "/config", "/provider", "/agent", "/command", "/file?path=.", "/file/status",
            "/find?pattern=marked", "/find/file?query=marked", "/find/message?query=marked",
            "/vcs", "/mcp", "/experimental/tool/ids",
            f"/session/{session}", f"/session/{session}/message?limit=2", f"/session/{session}/children",
            f"/session/{session}/todo", f"/session/{session}/diff", "/session/ses_unknown", "/nothing", "/session?limit=-1",
        ]  # fmt: skip
        await self.ask("GET", self.random.choice(paths))

    async def change(self) -> None:
        path = f"/session/{self.one()}"
        forked = await self.ask("POST", f"{path}/fork")
        await self.ask("POST", f"{path}/share")
        await self.ask("PATCH", path, {"title": f"again {self.mark}"})
        await self.ask("DELETE", f"/session/{forked.json()['id']}")

    async def abort(self) -> None:
        await self.ask("POST", f"/session/{self.one()}/abort")

    async def work(self, until: float) -> None:
        await self.write_a_file()
        await self.create()
        doings: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.create, self.prompt, self.prompt, self.reply, self.reply, self.write_a_file, self.shell, self.change, self.abort,
            *[self.read] * 8,
        ]  # fmt: skip
        while time.monotonic() < until:
            await self.random.choice(doings)()

    async def listen(self, path: str, until: float) -> None:
        """Leaves now and then, and comes back to where it was."""
        cursor = ""
        while time.monotonic() < until:
            query = {"parts": self.random.choice(["full", "delta"])}
            async with self.app.events(path, cursor=cursor, **query) as events:
                await asyncio.sleep(min(self.random.uniform(0.3, 1.5), max(0.0, until - time.monotonic())))
            self.received += [f"{event.cursor} {event.data}" for event in events.seen]
            ids = [event.cursor for event in events.seen if event.cursor]
            assert not any(map(str.isdigit, ids)), "the ids are no numbers that others advance"
            cursor = [cursor, *ids][-1]


def echo(request: ModelRequest) -> ScriptedTurn:
    """Says the newest mark in what the model is sent; now and then it reads the files first."""
    marks = _MARK.findall(str(request.messages))
    if "marked" in str(request.messages[-1]) and random.random() < 0.5:
        return parse_turn([{"tool": "bash", "args": {"command": "cat *.txt", "description": f"files of {marks[-1:]}"}}])
    return parse_turn([{"text": f"answer marked-secret-of-{marks[-1] if marks else 'nobody'} " * 20}])


async def test_two_members_at_once(tmp_path: Path, figure: Any) -> None:
    roots = {name: tmp_path / name for name in ("anna", "bert")}
    for root in roots.values():
        root.mkdir()
    async with running_app(tmp_path, otherwise=echo, patience=WORK_SECONDS * 4 + 180) as app:
        async with user(app, "anna", roots=[roots["anna"]]) as anna, user(app, "bert", roots=[roots["bert"]]) as bert:
            members = [Member(name, at, roots[name], random.Random(name)) for name, at in (("anna", anna), ("bert", bert))]
            until = time.monotonic() + WORK_SECONDS
            doings = [member.work(until) for member in members]
            doings += [member.listen(path, until) for member in members for path in ("/event", "/global/event")]
            await asyncio.gather(*doings)
            for member, other in (members, members[::-1]):
                received = "\n".join(member.received)
                assert member.mark in received and member.statuses >= {200, 404}
                found = [secret for secret in (other.mark, str(other.directory), *other.sessions) if secret in received]
                assert not found, f"{member.name} received {found}"
                assert not {500, 503} & member.statuses
            ratio = await timing_ratio(members[0], members[1].one())
    figure(
        f"{WORK_SECONDS:g} s of two members: {sum(len(member.received) for member in members)} answers and events, "
        f"{sum(len(member.sessions) for member in members)} sessions; 0 marks, directories or ids of the other; "
        f"a look at another's session takes {ratio:.2f} times one at an unknown one"
    )
    assert 1 / ALIKE < ratio < ALIKE


async def timing_ratio(member: Member, foreign: str) -> float:
    """Alternating, so that what the machine does otherwise concerns both."""
    taken: dict[str, list[int]] = {foreign: [], f"{foreign[:-6]}zzzzzz": []}
    for _ in range(LOOKS):
        for session, times in taken.items():
            began = time.perf_counter_ns()
            assert (await member.app.client.get(f"/session/{session}")).status_code == 404
            times.append(time.perf_counter_ns() - began)
    of_foreign, of_unknown = (statistics.median(times) for times in taken.values())
    return of_foreign / of_unknown


async def test_clones_of_one_repository_do_not_show_where_the_other_is(tmp_path: Path) -> None:
    """They are one project, whose main checkout is the one that was opened last."""
    first = make_workspace(tmp_path / "anna" / "first")
    subprocess.run(["git", "clone", "-q", first, tmp_path / "bert" / "second"], check=True)
    async with running_app(tmp_path) as app:
        roots = {name: tmp_path / name for name in ("anna", "bert")}
        async with user(app, "anna", roots=[roots["anna"]]) as anna, user(app, "bert", roots=[roots["bert"]]) as bert:
            for member, own, other in ((anna, first, "bert"), (bert, tmp_path / "bert" / "second", "anna")) * 2:
                at = {"directory": str(own)}
                current = await member.get("/project/current", params=at)
                assert current["worktree"] == str(own)
                await member.post("/session", {}, params=at)
                assert {each["project"]["worktree"] for each in await member.get("/experimental/session")} == {str(own)}
                worktree = await member.post("/experimental/worktree", {}, params=at)
                for path in ("/project", "/project/current", f"/project/{current['id']}/directories", "/experimental/worktree"):
                    answer = (await member.client.get(path, params=at)).text
                    assert str(roots[other]) not in answer, path
                    assert worktree["directory"] in answer, path
