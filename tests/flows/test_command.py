"""Commands: prompt templates with arguments, the output of shell commands, files and agents; and those that are subtasks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from turns import configured, infos, parts, priced, requests, say, texts, types, until

from app.workspace.commands import fill, references

COMMANDS: dict[str, Any] = {
    "greet": {"template": "Say hello to $1 from $2."},
    "plain": {"template": "Do the usual."},
    "list": {"template": "Here is !`pwd; ls` and !`echo $1`."},
    "look": {"template": "Look at @a.txt and @sub and @general and @nobody and @a.txt, me@a.txt."},
    "delegate": {"template": "Count @a.txt: $ARGUMENTS", "agent": "general", "description": "Counts"},
    "forced": {"template": "Think", "subtask": True},
    "inline": {"template": "Think", "agent": "general", "subtask": False},
    "planned": {"template": "Plan it", "agent": "plan"},
    "other-model": {"template": "Think", "model": "acme/other"},
    "varied": {"template": "Think", "variant": "high"},
    "no-model": {"template": "!`touch ran`", "model": "acme/nothing"},
    "no-agent": {"template": "Think", "agent": "nobody"},
    "many": {"template": "$ARGUMENTS" * 1_000},
    "numbered": {"template": "$1" * 1_000},
    "nested": {"template": "$1"},
    "prints": {"template": "!`echo >> begun; head -c 9000000 /dev/zero | tr '\\0' x`" * 3},
}


@asynccontextmanager
async def commanding(base: Path, **config: Any) -> AsyncIterator[RunningApp]:
    workspace = configured(base, {**priced(), "command": COMMANDS, **config})
    async with running_app(base, workspace=workspace) as running:
        yield running


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with commanding(tmp_path) as running:
        yield running


async def run(app: RunningApp, session: str, command: str, arguments: str = "", *, expect: int = 200, **fields: Any) -> Any:
    body = {"command": command, "arguments": arguments, **fields}
    return await app.post(f"/session/{session}/command", body, expect=expect)


@pytest.mark.parametrize(
    ("template", "arguments", "filled"),
    [
        ("Do it", "", "Do it"),
        ("Do it", "  ", "Do it"),
        ("Do it", "now please", "Do it\n\nnow please"),
        ("About $ARGUMENTS.", 'a "b c"', 'About a "b c".'),
        ("About $ARGUMENTS.", "", "About ."),
        ("$1 and $2", "one two", "one and two"),
        ("$1 and $2", "one two three four", "one and two three four"),
        ("$1", "one two three", "one two three"),
        ("$2 then $1", "one two three", "two three then one"),
        ("$1 and $3", "one two three four", "one and three four"),
        ("$1 and $2", "one", "one and "),
        ("$1 and $2", "", " and "),
        ("$1|$2|$3", "\"a b\" 'c d' e", "a b|c d|e"),
        ("$1|$2", "\"a 'b' c\" d", "a 'b' c|d"),
        ("$1|$2", "it's fine", "it|s fine"),
        ("$1|$2", "[Image 1] what is it", "[Image 1]|what is it"),
        ("$1|$2", '"" x', "|x"),
        ("$10|$1", "a b c d e f g h i j k", "j k|a"),
        ("$1 of $ARGUMENTS", "a b", "a b of a b"),
        ("cost $0", "a b", "cost "),
        ("$HOME and $", "a", "$HOME and $\n\na"),
        ("$" + "9" * 5000, "", "$" + "9" * 5000),
    ],
)
def test_a_template_is_filled(template: str, arguments: str, filled: str) -> None:
    assert fill(template, arguments) == filled


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see @a.txt", ["a.txt"]),
        ("see @src/main.py, @.env and @~/notes", ["src/main.py", ".env", "~/notes"]),
        ("me@example.com", []),
        ("`@code`", []),
        ("@a.txt.", ["a.txt"]),
        ("@a @b @a", ["a", "b"]),
        ("an @ alone", []),
        ("(@日本/x.py)", ["日本/x.py)"]),
        ("看@a.txt", ["a.txt"]),
    ],
)
def test_references_are_found(text: str, names: list[str]) -> None:
    assert references(text) == names


async def test_a_command_is_a_prompt_with_its_template_filled(app: RunningApp, session: str) -> None:
    app.provider.add([say("Hello, Ann.")])
    async with app.events() as events:
        answer = await run(app, session, "greet", '"Ann Lee" Bob')
        assert texts(answer) == ["Hello, Ann."]
        executed = (await events.until("command.executed")).properties
        told = {"name": "greet", "sessionID": session, "arguments": '"Ann Lee" Bob'}
        assert executed == {**told, "messageID": answer["info"]["id"]}
        assert events.types.index("command.executed") > events.types.index("session.idle")
    user, stored = await app.messages(session)
    assert texts(user) == ["Say hello to Ann Lee from Bob."] and stored == answer
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"}
    await run(app, session, "plain", messageID="msg_mine", parts=[image])
    user = (await app.messages(session))[2]
    assert user["info"]["id"] == "msg_mine" and types(user) == ["text", "file"], "what the client named and attached is kept"


PRINTED = {
    "standard output alone": ("!`echo out; echo err >&2`", "out"),
    "a failure is no error": ("[!`exit 3`]", "[]"),
    "several": ("!`echo '$1'` !`echo two`", "$1\n two"),
    "what runs on": ("!`sleep 0.1 & echo at once`", "at once"),
    "plain code": ("`echo not run`", "`echo not run`"),
}


async def test_what_a_command_prints_stands_in_its_place_and_a_key_of_a_provider_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_VISIBLE", "seen")
    monkeypatch.setenv("MISTRAL_API_KEY", "hidden-key")
    commands = {kind: {"template": template} for kind, (template, _) in {**PRINTED, "env": ("!`env`", "")}.items()}
    async with commanding(tmp_path, command=commands) as app:
        session = (await app.create_session(title="T"))["id"]
        for kind in commands:
            await run(app, session, kind, "$1" if kind == "several" else "")
        *printed, [env] = [texts(message) for message in await app.messages(session) if message["info"]["role"] == "user"]
    assert dict(zip(PRINTED, printed, strict=True)) == {kind: [text] for kind, (_, text) in PRINTED.items()}
    assert "SCRIPTED_VISIBLE=seen" in env and "hidden-key" not in env


async def test_files_directories_and_agents_are_attached_by_their_names(app: RunningApp, session: str) -> None:
    (app.directory / "sub").mkdir()
    (app.directory / "sub" / "inside.txt").touch()
    await run(app, session, "look")
    user = (await app.messages(session))[0]
    file, folder = parts(user, "file")
    assert (file["filename"], file["mime"], file["url"]) == ("a.txt", "text/plain", (app.directory / "a.txt").as_uri())
    assert (folder["filename"], folder["mime"]) == ("sub", "application/x-directory")
    assert [part["name"] for part in parts(user, "agent")] == ["general"]
    synthetic = " ".join(part["text"] for part in user["parts"] if part.get("synthetic"))
    assert "world" in synthetic and "inside.txt" in synthetic


async def test_in_a_subdirectory_shell_lines_run_there_and_references_are_seen_from_the_top_of_the_checkout_and_from_home(
    tmp_path: Path, plain_environment: Path
) -> None:
    """The configured default agent runs them."""
    (plain_environment / "notes.txt").write_text("from home\n")
    commands = {"see": {"template": "@a.txt @~/notes.txt @" + "x" * 300}, "list": COMMANDS["list"]}
    async with commanding(tmp_path, command=commands, default_agent="plan") as app:
        below = app.directory / "sub"
        below.mkdir()
        (below / "here.txt").touch()
        where = {"directory": str(below)}
        session = (await app.post("/session", {}, params=where))["id"]
        for command, arguments in (("list", "there"), ("see", "")):
            body = {"command": command, "arguments": arguments}
            await app.post(f"/session/{session}/command", body, params=where)
        listed, _, seen, _ = await app.messages(session)
    assert texts(listed) == [f"Here is {below}\nhere.txt\n and there\n."] and listed["info"]["agent"] == "plan"
    assert [part["filename"] for part in parts(seen, "file")] == ["a.txt", "~/notes.txt"]
    assert "from home" in json.dumps(seen["parts"])


async def test_the_commands_agent_model_and_variant_come_before_those_asked_for(app: RunningApp, session: str) -> None:
    await run(app, session, "planned", agent="build")
    await run(app, session, "other-model", model="acme/big")
    await run(app, session, "plain", agent="plan", model="acme/other")
    await run(app, session, "plain")
    await run(app, session, "varied")
    await run(app, session, "varied", variant="low")
    await run(app, session, "forced", model="acme/big")
    *prompts, delegated, _ = infos(await app.messages(session))
    assert delegated["model"]["modelID"] == "big", "it goes on with what a subtask has found"
    chosen = [("plan", "big"), ("build", "other"), ("plan", "other"), *[("build", "other")] * 3]
    assert [(info["agent"], info["model"]["modelID"]) for info in prompts] == chosen
    assert [info["variant"] for info in prompts[4:]] == ["high", "low"], "the variant holds where none is asked for"


async def test_a_subagents_command_is_stored_as_a_subtask_and_answered(app: RunningApp, session: str) -> None:
    app.provider.add([say("There are two lines.")], [say("Two, as the subagent found.")])
    answer = await run(app, session, "delegate", "its lines")
    messages = await app.messages(session)
    assert [message["info"]["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    asked, called, continuation, answered = messages
    assert answered == answer and texts(answer) == ["Two, as the subagent found."]
    given = {"prompt": "Count @a.txt: its lines", "description": "Counts", "command": "delegate"}
    (subtask,) = asked["parts"]
    wanted = {**given, "type": "subtask", "agent": "general", "model": asked["info"]["model"]}
    assert {key: subtask[key] for key in wanted} == wanted
    assert asked["info"]["agent"] == "build"
    (part,) = called["parts"]
    assert (called["info"]["mode"], called["info"]["finish"]) == ("general", "tool-calls")
    assert (part["type"], part["tool"], part["state"]["status"]) == ("tool", "task", "completed")
    assert part["state"]["input"] == {**given, "subagent_type": "general"}
    assert "There are two lines." in part["state"]["output"]
    assert types(continuation) == ["text"] and continuation["parts"][0]["synthetic"] is True
    assert continuation["info"]["agent"] == "build"
    assert types(answered) == ["step-start", "text", "step-finish"]
    (child,) = await app.get(f"/session/{session}/children")
    assert child["title"] == "Counts (@general subagent)"
    denied = {rule["permission"] for rule in child["permission"] if rule["action"] == "deny"}
    assert {"todowrite", "todoread", "task"} <= denied
    assert (await app.messages(child["id"]))[0]["info"]["tools"] == {"todowrite": False, "todoread": False, "task": False}


async def test_subtask_may_be_forced_or_forbidden(app: RunningApp, session: str) -> None:
    await run(app, session, "inline")
    await run(app, session, "forced")
    assert [types(message) for message in await app.messages(session) if message["info"]["role"] == "user"][:2] == [
        ["text"],
        ["subtask"],
    ]


CLOCK = {"clock": {"template": "$1: !`echo ran >> ran; until test -e go; do sleep 0.02; done; date +%N`"}}


async def sent_twice(app: RunningApp, path: str, body: dict[str, Any], ran: Path) -> list[Any]:
    """The answers to a request that its client repeats while the first one's shell line runs, and once more afterwards."""
    first = asyncio.create_task(app.post(path, body))
    await until(ran.exists)
    second = asyncio.create_task(app.post(path, body))
    (app.directory / "go").touch()
    return [await first, await second, await app.post(path, body)]


async def test_a_command_sent_again_runs_no_shell_line_again_and_gets_the_first_ones_answer(tmp_path: Path) -> None:
    async with commanding(tmp_path, command=CLOCK) as app, app.events() as events:
        session, ran = (await app.create_session(title="T"))["id"], app.directory / "ran"
        app.provider.add([say("Noted.")])
        body = {"command": "clock", "arguments": "now", "messageID": "msg_once"}
        answers = await sent_twice(app, f"/session/{session}/command", body, ran)
        assert texts(answers[0]) == ["Noted."]
        assert answers[1:] == answers[:1] * 2
        assert ran.read_text().split() == ["ran"] and len(requests(app)) == 1
        assert [message["info"]["role"] for message in await app.messages(session)] == ["user", "assistant"]
        await app.call("PATCH", f"/session/{session}", {"title": "Last"})
        await events.until(lambda event: event.properties.get("info", {}).get("title") == "Last")
        assert events.types.count("command.executed") == 1


async def test_another_command_with_the_same_message_id_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    async with commanding(tmp_path, command={**COMMANDS, **CLOCK}) as app:
        session = (await app.create_session(title="T"))["id"]
        (app.directory / "go").touch()
        await run(app, session, "clock", "now", messageID="msg_once")
        for other in ({"arguments": "then"}, {"command": "plain"}, {"agent": "plan"}, {"model": "acme/other"}):
            body = {"command": "clock", "arguments": "now", "messageID": "msg_once", **other}
            await app.post(f"/session/{session}/command", body, expect=409)
        assert (app.directory / "ran").read_text().split() == ["ran"] and len(await app.messages(session)) == 2


async def test_init_sent_again_runs_no_shell_line_again(tmp_path: Path) -> None:
    async with commanding(tmp_path, command={"init": CLOCK["clock"]}) as app:
        session = (await app.create_session(title="T"))["id"]
        body = {"providerID": "acme", "modelID": "other", "messageID": "msg_init"}
        assert await sent_twice(app, f"/session/{session}/init", body, app.directory / "ran") == [True] * 3
        assert (app.directory / "ran").read_text().split() == ["ran"]


async def test_what_is_unknown_is_rejected_before_anything_is_done(app: RunningApp, session: str) -> None:
    async with app.events() as events:
        for count, command in enumerate(("unknown", "no-agent", "no-model"), 1):
            refused = await run(app, session, command, expect=400)
            assert refused["name"] in ("BadRequest", "ProviderModelNotFoundError")
            told = (await events.until("session.error", count=count)).properties
            assert told["sessionID"] == session and told["error"]["data"]["message"] in str(refused["data"]["message"])
        assert events.types == ["server.connected", *["session.error"] * 3]
    assert await app.messages(session) == [] and not (app.directory / "ran").exists()


async def test_a_command_that_grows_beyond_what_a_part_may_have_is_refused_before_it_takes_memory(
    app: RunningApp, session: str
) -> None:
    for command, arguments in (
        ("many", "x" * 20_000),
        ("numbered", "x" * 20_000),
        ("nested", "$ARGUMENTS" * 2_000),
        ("prints", ""),
    ):
        refused = await run(app, session, command, arguments, expect=413)
        assert "A command, with" in refused["data"]["message"]
    assert (app.directory / "begun").read_text() == "\n\n" and await app.messages(session) == []


async def test_review_is_done_by_a_session_of_its_own(app: RunningApp, session: str) -> None:
    app.provider.add([say("One bug.")], [say("The review found one bug.")])
    assert texts(await run(app, session, "review", "HEAD~1")) == ["The review found one bug."]
    (child,) = await app.get(f"/session/{session}/children")
    prompt = texts((await app.messages(child["id"]))[0])[0]
    assert "HEAD~1" in prompt and "$ARGUMENTS" not in prompt
    assert (await app.messages(session))[0]["parts"][0]["command"] == "review"


async def test_init_is_a_command_that_marks_the_project(app: RunningApp, session: str) -> None:
    body = {"providerID": "acme", "modelID": "other", "messageID": "msg_init"}
    async with app.events() as events:
        assert await app.post(f"/session/{session}/init", body) is True
        executed = await events.until("command.executed")
    assert (executed.properties["name"], executed.properties["arguments"]) == ("init", "")
    user = (await app.messages(session))[0]
    assert (user["info"]["id"], user["info"]["model"]["modelID"]) == ("msg_init", "other")
    assert "AGENTS.md" in texts(user)[0]
    assert (await app.get("/project/current"))["time"]["initialized"]
