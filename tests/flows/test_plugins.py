"""Plugins in whole turns: what each hook is given, what it changes, and that none of them can end a turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import turns
from plugin_files import PluginFiles
from running_app import RunningApp, running_app
from turns import BIG, bash, configured, priced, requests, say, states, summarize, texts, until

from app.providers.base import ModelRequest, TextBlock, UserTurn
from app.tools.plugins.api import HOOK_NAMES

Log = pytest.LogCaptureFixture

EVERY_HOOK = """
    async def plugin(input):
        note("plugin", input.directory, input.worktree, dict(input.project))

        def config(config):
            config["agent"] = {**config["agent"], "helper": {"mode": "primary", "prompt": "You are the plugin's agent."}}

        async def chat_message(input, output):
            note("chat.message", input, output)
            output["message"]["system"] = "Be kind."
            output["parts"].append({"type": "text", "text": "And the plugin says hello."})

        async def chat_params(input, output):
            note("chat.params", input)
            output.update(temperature=0.25, topP=0.5, topK=7)
            output["options"]["reasoningEffort"] = "low"

        async def permission_ask(input, output):
            output["status"] = "allow"

        async def command_before(input, output):
            note("command.execute.before", input)
            output["parts"][0]["text"] += " Gladly."

        async def tool_before(input, output):
            note("tool.execute.before", input)
            if input["tool"] == "bash":
                output["args"]["command"] = "echo from the plugin"

        async def tool_after(input, output):
            note("tool.execute.after", input)
            output.update(title="Titled", output=output["output"] + "checked")
            output["metadata"]["by"] = "plugin"

        async def messages(input, output):
            output["messages"][-1]["parts"].append({**output["messages"][-1]["parts"][0], "text": "Only for the model."})

        async def text_complete(input, output):
            note("text", input)
            output["text"] = output["text"].upper()

        return {
            "event": lambda input: note("event", input["event"]["type"], input["event"]["properties"]),
            "config": config,
            "chat.message": chat_message,
            "chat.params": chat_params,
            "chat.headers": lambda input, output: output["headers"].update({"x-plugin": input["model"]["id"]}),
            "permission.ask": permission_ask,
            "command.execute.before": command_before,
            "tool.execute.before": tool_before,
            "tool.execute.after": tool_after,
            "experimental.chat.messages.transform": messages,
            "experimental.chat.system.transform": lambda input, output: output["system"].append("Answer in rhymes."),
            "experimental.session.compacting": lambda input, output: (
                note("compacting", input) or output["context"].append("Keep the names.")
            ),
            "experimental.text.complete": text_complete,
        }
"""
COMMANDS = {"greet": {"template": "Say hello."}}


@asynccontextmanager
async def opened(base: Path, config: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[RunningApp]:
    workspace = configured(base, {**priced(), "command": COMMANDS, **(config or {})})
    async with running_app(base, workspace=workspace, **settings) as running:
        yield running


@pytest.fixture
async def app(tmp_path: Path, files: PluginFiles) -> AsyncIterator[RunningApp]:
    """With one plugin that has every hook."""
    files.put("every", EVERY_HOOK)
    async with opened(tmp_path) as running:
        yield running


async def prompted(app: RunningApp, text: str = "Hi", *steps: Any, **fields: Any) -> dict[str, Any]:
    """The answer in a new session."""
    app.provider.add(*steps)
    return await app.prompt((await app.create_session())["id"], text, **fields)


async def signed(app: RunningApp) -> str:
    """How a letter ends that plugins sign."""
    return texts(await prompted(app, "Hi", [say("Yours,")]))[0]


def said_by_user(request: ModelRequest) -> list[str]:
    turns = [turn for turn in request.messages if isinstance(turn, UserTurn)]
    return [block.text for turn in turns for block in turn.content if isinstance(block, TextBlock)]


def test_the_plugin_of_these_tests_has_every_hook() -> None:
    assert [name for name in HOOK_NAMES if f'"{name}"' not in EVERY_HOOK] == []


async def test_hooks_of_a_prompt_change_what_is_stored_and_sent(app: RunningApp, files: PluginFiles, session: str) -> None:
    answer = await app.prompt(session, "Hi", agent="build", model=BIG)
    prompt, request = (await app.messages(session))[0], requests(app)[0]
    assert texts(prompt) == ["Hi", "And the plugin says hello."] and prompt["info"]["system"] == "Be kind."
    assert said_by_user(request) == ["Hi", "And the plugin says hello.", "Only for the model."]
    assert len(request.system) == 2 and "Be kind." in request.system[1] and request.system[1].endswith("Answer in rhymes.")
    assert (request.temperature, request.top_p, request.top_k) == (0.25, 0.5, 7)
    assert request.options["reasoningEffort"] == "low" and request.headers["x-plugin"] == "big"
    [[given, output]] = files.noted("chat.message")
    assert given == {"sessionID": session, "agent": "build", "model": BIG}
    assert (output["message"]["id"], output["parts"][0]["text"]) == (prompt["info"]["id"], "Hi")
    asked = files.noted("chat.params")[0][0]
    assert (asked["sessionID"], asked["message"]["id"]) == (session, answer["info"]["parentID"])
    assert (asked["agent"]["name"], asked["model"]["id"], asked["provider"]["id"]) == ("build", "big", "acme")
    await until(lambda: turns.title_requests(app), "the title's request")
    assert turns.title_requests(app)[0].headers["x-plugin"] == "title"
    place = {"id": (await app.get("/project/current"))["id"], "worktree": str(app.directory), "vcs": "git"}
    assert files.noted("plugin") == [[str(app.directory), str(app.directory), place]], "what it learns when it is loaded"
    await until(lambda: "session.idle" in [kind for kind, _ in files.noted("event")], "session.idle in the plugin")
    heard = [kind for kind, _ in files.noted("event")]
    assert heard.index("message.updated") < heard.index("message.part.updated") < heard.index("session.idle")


async def test_a_hook_may_call_the_server_it_runs_in(tmp_path: Path, files: PluginFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
    files.put(
        "caller",
        """
    async def plugin(input):
        async def complete(hook, output):
            found = await input.client.get("/session/" + hook["sessionID"])
            output["text"] = f"{found.status_code} {found.json()['directory']} {input.server_url}"
        return {"experimental.text.complete": complete}
    """,
    )
    async with opened(tmp_path, auth=("opencode", "secret")) as app:
        assert texts(await prompted(app)) == [f"200 {app.directory} http://127.0.0.1:4096"]


async def test_hooks_change_the_configuration_commands_calls_texts_and_summaries(
    app: RunningApp, files: PluginFiles, session: str
) -> None:
    assert (await app.get("/config"))["agent"]["helper"]["mode"] == "primary"
    app.provider.add([bash("echo from the model", "call_1")], [say("Hello there.  \n")])
    async with app.events() as events:
        answer = await app.post(f"/session/{session}/command", {"command": "greet", "arguments": "now", "agent": "helper"})
        await events.until("session.idle")
        updates = [event.properties["part"] for event in events.of_type("message.part.updated")]
    assert requests(app)[0].system[0] == "You are the plugin's agent."
    assert texts((await app.messages(session))[0])[0] == "Say hello.\n\nnow Gladly."
    assert files.noted("command.execute.before") == [[{"command": "greet", "sessionID": session, "arguments": "now"}]]

    [state] = await states(app, session)
    assert state["input"]["command"] == "echo from the model" and state["output"] == "from the plugin\nchecked"
    assert (state["title"], state["metadata"]["by"]) == ("Titled", "plugin")
    assert files.noted("tool.execute.before") == [[{"tool": "bash", "sessionID": session, "callID": "call_1"}]]
    assert files.noted("tool.execute.after")[0][0]["args"]["command"] == "echo from the model"

    [part] = turns.parts(answer, "text")
    assert files.noted("text")[0][0] == {"sessionID": session, "messageID": part["messageID"], "partID": part["id"]}
    said = [update["text"] for update in updates if update["id"] == part["id"]]
    assert part["text"] == said[-1] == "HELLO THERE.", "the hook has the last word"

    await summarize(app, session)
    assert said_by_user(requests(app)[-1])[-1].endswith("\n\nKeep the names.")
    assert files.noted("compacting") == [[{"sessionID": session}]]


async def test_compacting_may_ask_in_its_own_words(tmp_path: Path, files: PluginFiles) -> None:
    hook = 'lambda input, output: output.update(prompt="Sum up as a poem.")'
    files.put("poet", f'plugin = lambda input: {{"experimental.session.compacting": {hook}}}')
    async with opened(tmp_path) as app:
        await summarize(app, (await prompted(app))["info"]["sessionID"])
        assert said_by_user(requests(app)[-1])[-1] == "Sum up as a poem."


def deciding(status: str) -> str:
    return f"""
    async def plugin(input):
        async def ask(input, output):
            note("asked", input["permission"], input["patterns"], output["status"])
            output["status"] = {status!r}
        return {{"permission.ask": ask}}
    """


@pytest.mark.parametrize(
    ("decision", "rules", "outcome", "asked"),
    [
        ("allow", "ask", "ran\n", ["ask"]),
        ("allow", {"*": "allow", "echo *": "deny"}, "A permission rule forbids this", []),
        ("deny", "allow", "A plugin refused permission", ["allow"]),
        ("perhaps", "allow", "ran\n", ["allow"]),
    ],
)
async def test_a_plugin_decides_what_no_rule_denies(
    tmp_path: Path, files: PluginFiles, caplog: Log, decision: str, rules: Any, outcome: str, asked: list[str]
) -> None:
    files.put("decides", deciding(decision))
    async with opened(tmp_path, {"permission": {"bash": rules}}) as app:
        [state] = await turns.states_after(app, [bash("echo ran")], [say()])
    assert outcome in (state.get("output") or state["error"])
    assert files.noted("asked") == [["bash", ["echo ran"], status] for status in asked]
    assert ("plugin decides: its hook permission.ask failed" in caplog.text) is (decision == "perhaps")


async def test_always_allows_nothing_that_a_plugin_has_the_user_asked_for(tmp_path: Path, files: PluginFiles) -> None:
    files.put("decides", deciding("ask"))
    async with opened(tmp_path) as app:
        running = asyncio.create_task(prompted(app, "Run both", [bash("echo one"), bash("echo two")], [say()]))
        waiting = await turns.all_pending(app, 2)
        await turns.reply(app, waiting[0], "always")
        assert await app.get("/permission") == waiting[1:]
        await turns.reply(app, waiting[1])
        await running


FAILING = """
    import sys

    class Broken(BaseException):
        pass

    def failing(name):
        async def hook(*given):
            for value in given:
                value.clear()
            {failure}
        return hook

    def plugin(input):
        return {{name: failing(name) for name in {names!r}}}
"""
FAILURES = {
    "an exception": 'raise RuntimeError("broken " + name)',
    "an exit": "sys.exit(1)",
    "a cancellation": "import asyncio; raise asyncio.CancelledError()",
    "nonsense": 'given[-1].update(nonsense="broken " + name)',
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_in_every_hook_is_logged_and_the_turn_goes_on(
    failure: str, tmp_path: Path, files: PluginFiles, caplog: Log
) -> None:
    names = HOOK_NAMES - {"tool.execute.before"}
    files.put("broken", FAILING.format(failure=FAILURES[failure], names=sorted(names)))
    async with opened(tmp_path) as app:
        session = (await app.create_session())["id"]
        app.provider.add([bash("echo ran")], [say("Hello.")], [say("A summary.")])
        await app.post(f"/session/{session}/command", {"command": "greet", "arguments": ""})
        await summarize(app, session)
        messages = await app.messages(session)
        heard = "plugin broken: its hook event failed"
        await until(lambda: heard in caplog.text or failure == "nonsense", "the event hook's failure")
    assert [message["info"].get("error") for message in messages] == [None] * len(messages)
    assert texts(messages[0]) == ["Say hello."] and turns.tools(messages)[0]["state"]["output"] == "ran\n"
    assert [texts(message) for message in messages if texts(message)][-1] == ["A summary."]
    possible = {"event", "experimental.session.compacting", "config"}  # an empty one of these is a possible one
    unmoved = possible if failure == "nonsense" else set()
    assert [name for name in sorted(names - unmoved) if f"plugin broken: its hook {name} failed" not in caplog.text] == []


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_call_is_not_run_when_the_hook_before_it_fails(
    failure: str, tmp_path: Path, files: PluginFiles, caplog: Log
) -> None:
    """It may stand guard: OpenCode's documentation has a plugin that protects .env so."""
    files.put("guard", FAILING.format(failure=FAILURES[failure], names=["tool.execute.before"]))
    async with opened(tmp_path) as app:
        answer = await prompted(app, "Run it", [bash("touch ran")], [say("I could not.")])
        [state] = await states(app, answer["info"]["sessionID"])
        assert not (app.directory / "ran").exists()
    assert state["status"] == "error" and state["error"].startswith("Error: The plugin guard stopped this: ")
    assert texts(answer) == ["I could not."]
    assert "plugin guard: its hook tool.execute.before failed" in caplog.text


HANGING = {
    "coroutine": "async def hang(input, output):\n            await asyncio.Event().wait()",
    "thread": "def hang(input, output):\n            threading.Event().wait(60)",
}
SLOW = """
    import asyncio, threading
    def plugin(input):
        {}
        return {{"chat.params": hang}}
"""


@pytest.mark.parametrize("hang", HANGING.values(), ids=HANGING)
async def test_a_hook_that_hangs_is_cut(hang: str, tmp_path: Path, files: PluginFiles, caplog: Log) -> None:
    files.put("slow", SLOW.format(hang))
    async with opened(tmp_path, plugin_hook_seconds=0.05) as app:
        assert texts(await prompted(app, "Hi", [say("Hello.")])) == ["Hello."]
    assert "plugin slow: its hook chat.params failed: it took longer than 0.05 s and was cut" in caplog.text


async def test_an_abort_does_not_wait_for_a_hook(tmp_path: Path, files: PluginFiles) -> None:
    files.put(
        "slow",
        """
    import asyncio
    async def plugin(input):
        async def hang(input, output):
            note("hanging")
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    note("would not end")
                    return await asyncio.sleep(3600)
        return {"chat.params": hang}
    """,
    )
    async with opened(tmp_path) as app:
        session = (await app.create_session())["id"]
        await app.prompt_async(session, "Hi")
        await until(lambda: files.noted("hanging"), "the hook")
        async with asyncio.timeout(60):
            await app.post(f"/session/{session}/abort")
        assert (await app.messages(session))[1]["info"]["error"]["name"] == "MessageAbortedError"


SIGNING = """
    async def plugin(input):
        async def complete(input, output):
            output["text"] += " {word}"
            {then}
        return {{"experimental.text.complete": complete}}
"""


def signing(word: str, then: str = "") -> str:
    return SIGNING.format(word=word, then=then)


async def test_hooks_run_in_the_order_of_their_plugins_each_on_what_the_one_before_made(
    tmp_path: Path, files: PluginFiles
) -> None:
    for place in ("one", "two", "three"):
        then = 'raise RuntimeError("not this one")' if place == "two" else ""
        files.put_at(files.config_dir / "own" / f"{place}.py", signing(place, then))
    files.configure({"plugin": ["./own/one.py", "own/two.py", (files.config_dir / "own" / "three.py").as_uri()]})
    async with opened(tmp_path) as app:
        assert await signed(app) == "Yours, one three"


async def test_a_changed_plugin_holds_from_the_next_prompt_on(tmp_path: Path, files: PluginFiles) -> None:
    files.put("sign", signing("Ann"))
    async with opened(tmp_path) as app:
        assert await signed(app) == "Yours, Ann"
        files.put("sign", signing("Bob"))
        assert await signed(app) == "Yours, Bob"
    assert not list(files.config_dir.rglob("__pycache__"))


async def test_a_plugin_is_loaded_once_however_many_ask(app: RunningApp, files: PluginFiles) -> None:
    await asyncio.gather(*(app.get("/config") for _ in range(10)), *(prompted(app) for _ in range(3)))
    await app.call("PUT", "/auth/acme", {"type": "api", "key": "k"})
    await app.get("/config")
    assert len(files.noted("plugin")) == 1


async def test_old_plugins_hear_no_more_after_a_reload(app: RunningApp, files: PluginFiles) -> None:
    def titles_heard() -> list[str]:
        return [properties["info"]["title"] for kind, properties in files.noted("event") if kind == "session.created"]

    await prompted(app)
    await app.post("/instance/dispose")
    for title in ("after", "last"):
        await app.create_session(title=title)
        await until(lambda: title in titles_heard(), "session.created in the plugin")  # noqa: B023  awaited in the loop
    assert titles_heard().count("after") == 1 and app.services.bus.directories() == set()


async def test_what_cannot_be_loaded_is_shown_and_logged_and_the_others_are(
    tmp_path: Path, files: PluginFiles, caplog: Log
) -> None:
    failing = {
        "a_typo": "def plugin(input:",
        "b_raises": "def plugin(input):\n    raise RuntimeError('no luck')",
        "c_nothing": "x = 1",
        "d_number": "def plugin(input):\n    return 7",
        "e_string": "def plugin(input):\n    return {'chat.params': 'temperature'}",
        "f_exits": "import sys; sys.exit(3)",
    }
    unknown = "def plugin(input):\n    return {'chat.perms': print}"
    for name, source in {**failing, "g_unknown": unknown, "sign": signing("Ann")}.items():
        files.put(name, source)
    (files.config_dir / "plugin" / "sign.ts").write_text("export const Sign = async () => ({})")
    of_npm = ["opencode-helicone-session", "@my-org/custom-plugin"]
    files.configure({"plugin": [f"{of_npm[0]}@1.0.0", of_npm[1]]})
    async with opened(tmp_path) as app:
        assert await signed(app) == "Yours, Ann"
        shown = await app.get("/plugin")
    wanted = {(name, "failed") for name in failing} | {(name, "skipped") for name in (*of_npm, "sign")}
    assert {(plugin["name"], plugin["status"]) for plugin in shown} == wanted | {("sign", "loaded"), ("g_unknown", "loaded")}
    assert all("JavaScript" in plugin["reason"] for plugin in shown if plugin["status"] == "skipped")
    lines = [record.getMessage() for record in caplog.records]
    [line] = [line for line in lines if of_npm[0] in line]
    assert "is skipped" in line
    assert [name for name in failing if not any(f"plugin {name} was not loaded: " in line for line in lines)] == []
    assert "plugin g_unknown: this server has no such hooks: chat.perms" in caplog.text


async def test_modules_and_entry_points_are_plugins(tmp_path: Path, files: PluginFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    files.put_at(site / "own_package" / "__init__.py", "")
    files.put_at(site / "own_package" / "signing.py", signing("Ann"))
    files.put_at(site / "other_package.py", signing("Bob").replace("def plugin", "def signs"))
    (site / "other-1.dist-info").mkdir()
    (site / "other-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (site / "other-1.dist-info" / "entry_points.txt").write_text("[opensession.plugins]\nsign-bob = other_package:signs\n")
    monkeypatch.syspath_prepend(site)
    files.configure({"plugin": ["own_package.signing", "sign-bob"]})
    async with opened(tmp_path) as app:
        assert await signed(app) == "Yours, Ann Bob"
        shown = {plugin["name"]: plugin["status"] for plugin in await app.get("/plugin")}
    assert shown == {"own_package.signing": "loaded", "sign-bob": "loaded"}


async def test_code_of_a_project_is_not_run_unless_allowed(tmp_path: Path, files: PluginFiles, caplog: Log) -> None:
    workspace = configured(tmp_path, {**priced(), "plugin": ["./evil.py", "json.decoder"]})
    evil = "note('evil ran')\n" + dedent(signing("Eve"))
    files.put_at(workspace / "evil.py", evil)
    files.put_at(workspace / ".opencode" / "plugin" / "sign.py", evil)
    files.put_at(workspace / ".opencode" / "tool" / "dice.py", "note('evil ran')\ntool = {'description': '', 'execute': str}")
    files.put("sign", signing("Ann"))
    async with running_app(tmp_path, workspace=workspace) as app:
        assert await signed(app) == "Yours, Ann"
        shown = await app.get("/plugin")
        assert [plugin["name"] for plugin in shown if plugin["status"] == "skipped"] == ["evil", "json.decoder", "sign", "dice"]
    assert files.noted("evil ran") == []
    assert "plugin evil is skipped: it comes with the project" in caplog.text
    assert "OPENSESSION_PROJECT_PLUGINS=true" in caplog.text
    async with running_app(tmp_path, workspace=workspace, project_plugins=True) as app:
        assert await signed(app) == "Yours, Eve Eve"
    assert len(files.noted("evil ran")) == 3
