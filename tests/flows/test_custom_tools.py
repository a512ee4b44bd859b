"""Tools that plugins and files of the configuration's folders bring, in whole turns."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from plugin_files import PluginFiles
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import call, configured, pending, priced, reply, requests, say, states, states_after, until

DICE = """
    from pydantic import BaseModel, Field
    from app.tools.plugins.api import Tool, ToolResult

    class Roll(BaseModel):
        sides: int = Field(ge=2, description="How many sides the die has")

    async def roll(args, context):
        await context.metadata(title="Rolling", metadata={"sides": args.sides})
        return ToolResult(f"{args.sides} of {args.sides}", title="Rolled", metadata={"lucky": True})

    def plainly(args, context):
        note("context", context.session_id, context.message_id, context.agent, context.directory)
        return f"{args['count']} x {args['word']}"

    def by_schema(args, context):
        return str(sorted(args.items()))

    tool = Tool("Rolls a die", Roll, roll)
    words = {"description": "Repeats", "args": {"word": str, "count": (int, 2)}, "execute": plainly}
    loose = Tool("Takes anything", {"type": "object", "properties": {"city": {"type": "string"}}}, by_schema)
    _hidden = words
"""


@asynccontextmanager
async def opened(base: Path, **config: Any) -> AsyncIterator[RunningApp]:
    async with running_app(base, workspace=configured(base, {**priced(), **config})) as running:
        yield running


@pytest.fixture
async def app(tmp_path: Path, files: PluginFiles) -> AsyncIterator[RunningApp]:
    files.put("dice", DICE, folder="tool")
    async with opened(tmp_path) as running:
        yield running


async def called(app: RunningApp, tool: str, **args: Any) -> dict[str, Any]:
    """The state of the one call of a tool in a new session."""
    [state] = await states_after(app, [call(tool, **args)], [say()])
    return state


async def test_tools_of_a_file_are_offered_and_called_with_arguments_that_are_checked(
    app: RunningApp, files: PluginFiles
) -> None:
    state = await called(app, "dice", sides=6)
    assert (state["status"], state["output"], state["title"]) == ("completed", "6 of 6", "Rolled")
    assert state["metadata"] == {"lucky": True, "truncated": False}
    offered = {tool.id: tool for tool in requests(app)[0].tools if tool.id.startswith("dice")}
    assert sorted(offered) == ["dice", "dice_loose", "dice_words"] and offered["dice"].description == "Rolls a die"
    assert offered["dice"].parameters["properties"]["sides"]["description"] == "How many sides the die has"
    assert offered["dice_words"].parameters["required"] == ["word"]
    assert offered["dice_loose"].parameters == {"type": "object", "properties": {"city": {"type": "string"}}}
    assert offered.keys() <= set(await app.get("/experimental/tool/ids"))
    listed = await app.get("/experimental/tool", params={"provider": "acme", "model": "big"})
    assert "dice" in [tool["id"] for tool in listed]

    refused = await called(app, "dice", sides=1)
    assert refused["status"] == "error" and "sides: Input should be greater than or equal to 2" in refused["error"]

    plain = await called(app, "dice_words", word="six")
    assert (plain["output"], plain["title"]) == ("2 x six", ""), "a plain function gets a dict with its defaults"
    [[session, message, agent, directory]] = files.noted("context")
    assert (session[:4], message[:4], agent, directory) == ("ses_", "msg_", "build", str(app.directory))


NO_JSON = {
    "object": "{'x': object()}",
    "surrogate": "{'x': '\\ud800'}",
    "itself": "(lambda it: it.update(it=it) or it)({})",
    "bytes": "{'x': b'\\xff'}",
    "deep": "(lambda f: f(f, 400))(lambda f, n: {'x': f(f, n - 1)} if n else {})",
    "deeper than a client's": "(lambda f: f(f, 220))(lambda f, n: {'x': f(f, n - 1)} if n else {})",
    "list": "['no', 'dict']",
    "none": "None",
}
RESULTS = [f"ToolResult('done', metadata={value})" for value in NO_JSON.values()]
RESULTS += ["ToolResult('done', title=7)", "ToolResult(7)", "'half \\ud800'", "ToolResult('done', title='\\udcff')"]
FAILING = {
    "raise ValueError('no die')": "no die",
    "import sys; sys.exit(1)": "SystemExit",
    "return 7": "returned int and not text",
    "raise ValueError('half \\ud800')": "ValueError",
    "raise OSError(2, 'none', '/a/\\udcff')": "FileNotFoundError",
    **{f"return {result}": "broken" for result in RESULTS},
}


async def states_of_all(base: Path, files: PluginFiles, bodies: Iterable[str]) -> list[dict[str, Any]]:
    """A tool with each body, called in one step."""
    define = "async def run{0}(args, context):\n    {1}\nt{0} = {{'description': '', 'execute': run{0}}}"
    made = [define.format(number, body) for number, body in enumerate(bodies)]
    files.put("broken", "\n".join(["from app.tools.plugins.api import ToolResult", *made]), folder="tool")
    async with opened(base) as app:
        return await states_after(app, [call(f"broken_t{n}") for n in range(len(made))], [say()])


async def test_what_fails_or_cannot_be_stored_is_an_error_of_its_call(tmp_path: Path, files: PluginFiles) -> None:
    states = await states_of_all(tmp_path, files, FAILING)
    for (body, error), state in zip(FAILING.items(), states, strict=True):
        assert state["status"] == "error" and error in state["error"], (body, state)


async def test_progress_and_questions_that_are_no_json_are_an_error_of_the_tool(tmp_path: Path, files: PluginFiles) -> None:
    told = ("context.metadata(metadata={})", "context.ask('some', ['*'], metadata={})")
    values = [value for name, value in NO_JSON.items() if name != "none"]
    bodies = [TELLING.format(way.format(value)) for way in told for value in values]
    states = await states_of_all(tmp_path, files, bodies)
    assert [(state["status"], state["output"][:8]) for state in states] == [("completed", "refused:")] * len(bodies)


TELLING = """await context.metadata(title="Begun", metadata=dict(step=1))
    try:
        await {}
    except Exception as error:
        return f"refused: {{type(error).__name__}}"
    return "taken"
"""


KEPT = """
    from datetime import date
    from pathlib import Path
    from app.tools.plugins.api import ToolResult

    async def execute(args, context):
        told = {"day": date(2026, 1, 2), "path": Path("/a"), "pair": (1, 2), 3: float("nan"), "many": 2**70}
        await context.metadata(metadata=told)
        told["later"] = object()
        return ToolResult("done", metadata={**told, "later": 1})

    tool = {"description": "", "execute": execute}
"""
WEATHER = """
    async def plugin(input):
        async def execute(args, context):
            return f"sunny in {args['city']}"
        return {"tool": {"weather": {"description": "Tells the weather", "args": {"city": str}, "execute": execute}}}
"""


async def test_what_has_a_form_in_json_is_stored_as_it_was_when_it_was_told_and_long_output_is_cut(
    tmp_path: Path, files: PluginFiles
) -> None:
    files.put("kept", KEPT, folder="tool")
    files.put("long", "tool = {'description': 'Long', 'execute': lambda args, context: 'x\\n' * 5000}", folder="tools")
    files.put("weather", WEATHER)
    async with opened(tmp_path) as app:
        state, long = await called(app, "kept"), await called(app, "long")
        assert (await called(app, "weather", city="Rome"))["output"] == "sunny in Rome", "a plugin brings tools, too"
    stored = {"day": "2026-01-02", "path": "/a", "pair": [1, 2], "3": None, "many": 2**70, "later": 1, "truncated": False}
    assert (state["status"], state["metadata"]) == ("completed", stored)
    assert long["metadata"]["truncated"] is True and "lines truncated" in long["output"]


async def test_a_hooks_result_that_is_no_json_changes_nothing(tmp_path: Path, files: PluginFiles) -> None:
    files.put(
        "spoils",
        """
    async def plugin(input):
        async def after(input, output):
            output["output"], output["metadata"] = "spoilt", {"x": object()}
        async def message(input, output):
            output["parts"][0]["metadata"] = {"x": object()}
        return {"tool.execute.after": after, "chat.message": message}
    """,
    )
    files.put("dice", DICE, folder="tool")
    async with opened(tmp_path) as app:
        state = await called(app, "dice", sides=6)
    assert (state["status"], state["output"], state["metadata"]["lucky"]) == ("completed", "6 of 6", True)


DEPLOY = """
    async def execute(args, context):
        await context.ask("deploy_to", [args["place"]], always=["*"], metadata={"why": "it was asked for"})
        return "deployed"

    tool = {"description": "Deploys", "args": {"place": str}, "execute": execute}
"""


async def test_rules_speak_of_a_tool_by_its_id_and_it_may_ask_for_permission_itself(tmp_path: Path, files: PluginFiles) -> None:
    files.put("dice", DICE, folder="tool")
    files.put("deploy", DEPLOY, folder="tool")
    rules = {"dice": "ask", "dice_words": "deny", "deploy_to": {"*": "deny", "test": "allow"}}
    async with opened(tmp_path, permission=rules) as app:
        assert (await called(app, "deploy", place="test"))["output"] == "deployed"
        assert "A permission rule forbids" in (await called(app, "deploy", place="live"))["error"]
        running = asyncio.create_task(called(app, "dice", sides=6))
        request = await pending(app)
        assert (request["permission"], request["patterns"]) == ("dice", ["*"])
        await reply(app, request, "reject")
        assert "rejected permission" in (await running)["error"]
        assert "dice_words" not in [tool.id for tool in requests(app)[0].tools]


WAIT = """
    def execute(args, context):
        note("waiting")
        note("aborted", context.abort.wait(20))
        return ""

    tool = {"description": "Waits", "execute": execute}
"""


async def test_an_abort_ends_a_call_and_tells_a_thread(tmp_path: Path, files: PluginFiles) -> None:
    files.put("wait", WAIT, folder="tool")
    async with opened(tmp_path) as app:
        session = (await app.create_session())["id"]
        app.provider.add([call("wait")])
        await app.prompt_async(session, "Wait")
        await until(lambda: files.noted("waiting"), "the call")
        await app.post(f"/session/{session}/abort")
        assert (await states(app, session))[0]["error"] == "Tool execution aborted"
        await until(lambda: files.noted("aborted"), "the end of the thread")
    assert files.noted("aborted") == [[True]]


async def test_what_cannot_be_a_tool_is_left_out_and_the_rest_works(
    tmp_path: Path, files: PluginFiles, caplog: pytest.LogCaptureFixture
) -> None:
    schema = "{'type': 'object', 'properties': {'a': {'default': object()}}}"
    fields = {
        "odd name!": "'description': ''",
        "shapeless": "'description': '', 'args': {'a': 'no type at all'}",
        "wordless": "'description': object()",
        "spoilt": f"'description': '', 'args': {schema}",
        "bash": "'description': 'Not the shell'",
        "fine": "'description': 'Fine'",
    }
    for name, described in fields.items():
        files.put(name, f"tool = {{{described}, 'execute': lambda args, context: 'ran'}}", folder="tool")
    files.put("empty", "x = 1", folder="tool")
    async with opened(tmp_path) as app:
        assert (await called(app, "fine"))["output"] == "ran"
        assert (await called(app, "bash", command="echo shell", description="Runs"))["output"] == "shell\n"
    assert [name for name in [*fields][:4] if f"tool {name} is left out" not in caplog.text] == []
    assert "tool empty was not loaded: it defines no tool" in caplog.text


RUNNER = """
    async def look(args, context):
        ended = await context.run(["/bin/sh", "-c", f"cat {args['path']}; pwd; exit 3"])
        return f"{ended.code} {ended.output}"

    tool = {"description": "Looks", "args": {"path": str}, "execute": look}
"""


@needs_sandbox
async def test_a_program_that_a_tool_runs_is_in_the_sandbox(tmp_path: Path, files: PluginFiles) -> None:
    files.put("look", RUNNER, folder="tool")
    (tmp_path / "beside").write_text("a secret")
    async with opened(tmp_path) as app:
        (app.directory / "inside").write_text("a text\n")
        hidden = await called(app, "look", path=str(tmp_path / "beside"))
        shown = await called(app, "look", path="inside")
    assert "a secret" not in hidden["output"] and hidden["output"].startswith("3 ")
    assert shown["output"] == f"3 a text\n{app.directory}\n"
