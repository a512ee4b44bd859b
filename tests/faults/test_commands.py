"""Commands, paths and links that try to get past the rules, called by a model in whole turns: none may run, be it that a rule
forbids it or that a person, who is asked, says no. What ran shows on the disk."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from command_tricks import FORBIDDEN, ORDINARY
from figures import Figure
from long_form import LONG
from path_tricks import FILE_TOOLS, GUARDED_EDITS, GUARDED_READS, OUTSIDE
from running_app import RunningApp, running_app
from trick_ground import SECRET, Location, model_for
from turns import bash, pending, say, talking, tools, until

from app.providers.scripted import Call, ScriptedProvider

EACH_COMMAND, EACH_CALL = (1, 1) if LONG else (16, 4)
"""The short form takes one of so many."""


@asynccontextmanager
async def serving(place: Location, permission: dict[str, Any]) -> AsyncIterator[RunningApp]:
    """With a person who says no to everything."""
    place.prepare({"permission": permission})
    provider = ScriptedProvider(otherwise=place.answer)
    async with running_app(place.base, provider=provider, patience=600, sandbox="off") as app, app.events():
        person = asyncio.create_task(say_no(app, place))
        yield app
        person.cancel()


async def say_no(app: RunningApp, place: Location) -> None:
    while True:
        for request in await app.get("/permission"):
            place.asked.add(request["sessionID"])
            await app.post(f"/permission/{request['id']}/reply", {"reply": "reject"})
        await asyncio.sleep(0.005)


def tricks() -> list[tuple[int, str]]:
    """Numbered."""
    groups = [*FORBIDDEN.values(), *OUTSIDE.values()]
    return list(enumerate(command for commands in groups for command in commands))[::EACH_COMMAND]


def rules(action: str) -> dict[str, Any]:
    return {"bash": {"*": "allow", "touch *": action}, "external_directory": action}


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_no_command_gets_past_a_rule(place: Location, figure: Figure, action: str) -> None:
    refused = 0
    async with serving(place, rules(action)) as app:
        attempts = [place.attempt(number, command) for number, command in tricks()]
        for attempt in attempts:
            state = await place.run(app, attempt)
            assert state["status"] == "error", (attempt.command, state)
            assert state["asked"] or action == "deny", attempt.command
            refused += not state["asked"]
    ran = [attempt.command for attempt in attempts if place.has_run(attempt)]
    figure(f"{len(attempts)} commands against {action} rules: {len(ran)} run ({refused} refused, the others asked about)")
    assert ran == []


async def test_each_of_the_commands_would_run_if_it_were_allowed(place: Location, figure: Figure) -> None:
    ran, missing, idle = 0, 0, []
    async with serving(place, {"*": "allow"}) as app:
        for number, command in tricks():
            place.put_back()
            attempt = place.attempt(number, command)
            output = (await place.run(app, attempt)).get("output", "")
            if place.has_run(attempt):
                ran += 1
            elif "not found" in output or "No such file" in output:
                missing += 1
            else:
                idle.append((command, output))
    figure(f"{ran} of them run when all is allowed, {missing} lack their program on this machine")
    assert idle == [] and ran >= 10 * missing


async def test_ordinary_commands_run_beside_the_rules(place: Location, figure: Figure) -> None:
    async with serving(place, rules("deny")) as app:
        attempts = [place.attempt(number, command) for number, command in enumerate(ORDINARY)]
        for attempt in attempts:
            state = await place.run(app, attempt)
            assert state["status"] == "completed" and not state["asked"], (attempt.command, state)
    left = [attempt.command for attempt in attempts if not place.has_run(attempt)]
    figure(f"{len(attempts)} ordinary commands beside the same rules: {len(attempts) - len(left)} run, none asked about")
    assert left == []


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("calls", "permission"),
    [
        pytest.param(FILE_TOOLS, {"external_directory": "ACTION"}, id="outside"),
        pytest.param(GUARDED_READS, {"read": {"*.env": "ACTION"}}, id="reads"),
        pytest.param(GUARDED_EDITS, {"edit": {"*.env": "ACTION"}}, id="edits"),
    ],
)
async def test_no_tool_reaches_a_file_that_a_rule_is_about(
    place: Location, figure: Figure, calls: list[Any], permission: dict[str, Any], action: str
) -> None:
    allowed = {"*": "allow", **json.loads(json.dumps(permission).replace("ACTION", action))}
    async with serving(place, allowed) as app:
        before = place.contents()
        for tool, args in calls[::EACH_CALL]:
            text = json.dumps(args).replace("OUT", str(place.base / "outside")).replace("WORKSPACE", str(place.workspace))
            first = [Call("read", {"filePath": "key.env"})] if calls is GUARDED_EDITS else []
            state = await place.call(app, *first, Call(tool, json.loads(text)))
            assert state["status"] == "error", (tool, args, state)
            assert state["asked"] or action == "deny", (tool, args)
            assert SECRET not in state["error"], (tool, args, state)
    reached = [path for path, text in place.contents().items() if before.get(path, SECRET) != text]
    figure(f"{len(calls[::EACH_CALL])} calls of file tools against {action} rules: {len(reached)} files read, changed or made")
    assert reached == []


SWAPPED = {
    "read": ({"filePath": "src/b.txt"}, "read"),
    "write": ({"filePath": "src/new", "content": "made"}, "edit"),
    "write over": ({"filePath": "src/b.txt", "content": "made"}, "edit"),
    "edit": ({"filePath": "src/b.txt", "oldString": "true", "newString": "made"}, "edit"),
    "apply_patch": ({"patchText": "*** Begin Patch\n*** Add File: src/new\n+made\n*** End Patch"}, "edit"),
    "list": ({"path": "src"}, "list"),
    "grep": ({"path": "src", "pattern": SECRET}, "grep"),
    "glob": ({"path": "src", "pattern": "**"}, "glob"),
}


@pytest.mark.parametrize("name", SWAPPED)
async def test_a_link_put_in_place_while_permission_was_asked_leads_nowhere(place: Location, name: str) -> None:
    """The person says yes to a file of the project; meanwhile its folder has become a link."""
    args, permission = SWAPPED[name]
    place.prepare({"permission": {"*": "allow", permission: "ask", "external_directory": "deny"}})
    for file in ("b.txt", f"{SECRET}.txt"):
        (place.base / "outside" / file).write_text(f"true {SECRET}\n")
    tool = name.split()[0]
    read = [{"tool": "read", "args": {"filePath": "src/b.txt"}}]
    turns = [*([read] if permission == "edit" else []), [{"tool": tool, "args": args}], [say()]]
    before = place.contents()
    async with talking(place.base, turns=turns, title="T") as (app, session):
        turn = asyncio.create_task(app.prompt(session, "Go on", model=model_for(tool)))
        request = await pending(app)
        (place.workspace / "src").rename(place.workspace / "src before")
        (place.workspace / "src").symlink_to("../outside")
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await turn
        called = tools(await app.messages(session))[-1]
    outside = {path: text for path, text in place.contents().items() if path.startswith(str(place.base / "outside"))}
    assert outside == {path: text for path, text in before.items() if path in outside}
    assert SECRET not in called["state"].get("output", "")


async def test_a_link_that_another_call_makes_meanwhile_leads_nowhere(place: Location) -> None:
    """Both calls stand in one answer of the model, and run side by side."""
    place.prepare({"permission": {"*": "allow", "external_directory": "deny"}})
    swap = "for i in $(seq 300); do mv src s2; ln -s ../outside src; rm src; mv s2 src; done"
    writes = [{"tool": "write", "args": {"filePath": f"src/new{n}", "content": "made"}} for n in range(30 if LONG else 8)]
    async with talking(place.base, turns=[[bash(swap), *writes], [say()]], title="T") as (app, session):
        await app.prompt(session, "Go on")
        await until(lambda: not app.services.live.is_running(session))
    assert list((place.base / "outside").glob("new*")) == []
