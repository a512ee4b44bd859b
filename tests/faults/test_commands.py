"""Commands, paths and links that try to get past the rules, called by a model in whole turns: none may run, be it that a rule
forbids it or that a person, who is asked, says no. What ran shows on the disk."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from figures import Figure
from long_form import LONG
from running_app import RunningApp, running_app
from trick_ground import COMMANDS, SECRET, TRICKS, Location, model_for
from turns import bash, pending, say, talking, tools, until

from app.providers.scripted import Call, ScriptedProvider

EACH_COMMAND, EACH_CALL = (1, 1) if LONG else (16, 4)
"""The short form takes one of so many."""
ATTEMPTED = list(enumerate(COMMANDS))[::EACH_COMMAND]

CHANGE = {"oldString": "SECRET", "newString": "changed"}
EDITING: dict[str, dict[str, Any]] = {"write": {"content": "changed"}, "edit": CHANGE, "multiedit": {"edits": [CHANGE]}}


def patches(kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [("apply_patch", {"patchText": f"*** Begin Patch\n{change}\n*** End Patch"}) for change in TRICKS[kind]]


FILE_TOOLS: list[tuple[str, dict[str, Any]]] = [
    *(
        (tool, {**args, "path" if tool == "grep" else "filePath": path})
        for path in TRICKS["FILES"]
        for tool, args in {"read": {}, **EDITING, "grep": {"pattern": "SECRET"}}.items()
    ),
    *(
        (tool, {**args, "path": path})
        for path in TRICKS["FOLDERS"]
        for tool, args in {"glob": {"pattern": "**/secret"}, "grep": {"pattern": "SECRET"}, "list": {}}.items()
    ),
    *(("write", {"filePath": path, "content": "made"}) for path in TRICKS["NEW"]),
    *patches("PATCHES"),
    *(("bash", {"command": "cp a.txt new; cat secret", "workdir": path, "description": "x"}) for path in TRICKS["WORKDIRS"]),
]
"""Calls of tools that would read, change or make a file outside the project."""
GUARDED_READS = [("read", {"filePath": path}) for path in TRICKS["KEYS"]]
GUARDED_EDITS = [
    *((tool, {**args, "filePath": path}) for path in TRICKS["KEYS"] for tool, args in EDITING.items()),
    *patches("KEY_PATCHES"),
]


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


def rules(action: str) -> dict[str, Any]:
    return {"bash": {"*": "allow", "touch *": action}, "external_directory": action}


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_no_command_gets_past_a_rule(place: Location, figure: Figure, action: str) -> None:
    refused = 0
    async with serving(place, rules(action)) as app:
        attempts = [place.attempt(number, command) for number, command in ATTEMPTED]
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
        for number, command in ATTEMPTED:
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
        ran = await place.run_all(app, TRICKS["ORDINARY"])
    figure(f"{ran} ordinary commands beside the same rules: all run, none asked about")


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("calls", "guarded", "pattern"),
    [
        pytest.param(FILE_TOOLS, "external_directory", "*", id="outside"),
        pytest.param(GUARDED_READS, "read", "*.env", id="reads"),
        pytest.param(GUARDED_EDITS, "edit", "*.env", id="edits"),
    ],
)
async def test_no_tool_reaches_a_file_that_a_rule_is_about(
    place: Location, figure: Figure, calls: list[Any], guarded: str, pattern: str, action: str
) -> None:
    async with serving(place, {"*": "allow", guarded: {pattern: action}}) as app:
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
    before = place.contents("outside")
    async with talking(place.base, turns=turns, title="T") as (app, session):
        turn = asyncio.create_task(app.prompt(session, "Go on", model=model_for(tool)))
        request = await pending(app)
        (place.workspace / "src").rename(place.workspace / "src before")
        (place.workspace / "src").symlink_to("../outside")
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await turn
        called = tools(await app.messages(session))[-1]
    assert place.contents("outside") == before and SECRET not in called["state"].get("output", "")


async def test_a_link_that_another_call_makes_meanwhile_leads_nowhere(place: Location) -> None:
    """Both calls stand in one answer of the model, and run side by side."""
    place.prepare({"permission": {"*": "allow", "external_directory": "deny"}})
    swap = "for i in $(seq 300); do mv src s2; ln -s ../outside src; rm src; mv s2 src; done"
    writes = [{"tool": "write", "args": {"filePath": f"src/new{n}", "content": "made"}} for n in range(30 if LONG else 8)]
    async with talking(place.base, turns=[[bash(swap), *writes], [say()]], title="T") as (app, session):
        await app.prompt(session, "Go on")
        await until(lambda: not app.services.live.is_running(session))
    assert list((place.base / "outside").glob("new*")) == []
