"""OpenCode 1.18.33 and this server side by side, with the same model: what each answers and announces about sessions.

The long form, with OPENSESSION_LONG=1: OpenCode needs a minute of CPU. OPENCODE_PROGRAM names its binary; else npm installs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx2
import pytest
from beside import STREAMS, Side, comparable, differences, opencode, this_server, told
from long_form import LONG
from model_server import ModelServer, Pause, Reasoning, Refusal, Step
from running_server import RunningServer

pytestmark = pytest.mark.skipif(not LONG, reason="OpenCode takes a minute of CPU: OPENSESSION_LONG=1")

Facts = dict[str, Any]
Scenario = Callable[[Side], Awaitable[Facts]]
SCENARIOS: dict[str, Scenario] = {}
PAUSE = Pause(0.4)
"""Before a tool is called: OpenCode takes the step's snapshot beside the answer."""

MODEL = {"providerID": "fake", "modelID": "main"}
QUESTION = {"question": "Which?", "header": "Choice", "options": [{"label": "A", "description": "a"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_SESSION, NO_MESSAGE = "ses_0000000000000000000000000", "msg_000000000000AAAAAAAAAAAAAA"

_TEXTS = "system prompts and the texts of tools are our own words, in OpenCode 1.1's form"
_DIFFS = "a prompt that changed no file has no `summary.diffs`"
_READ = "what the read tool shows has the form of OpenCode 1.1"
_SECOND = "OpenCode's second API has tools of its own; here those of the first answer"

DIFFERENCES = {
    "*.tokens.total": "the sum of the others, which OpenCode 1.1 does not send",
    "created.body.cost": "the answer that creates a session has the keys of 1.1",
    "created.body.path": "the same",
    "created.body.tokens": "the same",
    "*.summary": _DIFFS,
    "*.summary.additions": "OpenCode counts a session's changes when something is reverted; here always",
    "*.summary.deletions": "the same",
    "*.summary.files": "the same",
    "*.patch": "a count of one line is written `+1,1` there, `+1` here, as git does",
    "*.state.output": _TEXTS,
    "*.state.error": _TEXTS,
    "*.state.metadata.output": _TEXTS,
    "*.parts.*.text": _TEXTS,
    "*.state.input.error": _TEXTS,
    "*.state.metadata.display*": _READ,
    "*.state.metadata.loaded": _READ,
    "*.state.metadata.preview": _READ,
    "*.state.title": "the title of a command is its description, as in 1.1",
    "asked.patterns.*": "a command without where its output goes, as in 1.1; a redirect out of the project asks on its own",
    "*child*.permission*": "a subagent's session has the rules that hold for it, its parent's too",
    "forked.*.body.tokens.*": "a fork counts what its messages took",
    "forked.*.body.cost": "the same",
    "*.state.status": "an aborted command is a failed call, as in 1.1; in 1.18 a completed one",
    "*.state.metadata.exit": "the same",
    "*.state.metadata.truncated": "the same",
    "created2.body.data.title": "the default title names the time",
    "messages2.*.content.*.id": "a text has the id of its part",
    "history.*.data.textID": "the same",
    "history.*.data.snapshot": "a step is told of before its snapshot is taken: its message has it",
    "history.*.data.text": "arguments of a call are told as JSON without blanks",
    "history.*.data.cost": "OpenCode's second API counts no costs",
    "messages2.*.cost": "the same",
    "*.structured.*": _SECOND,
    "*.outputPaths": _SECOND,
    "*.content.length": _SECOND,
}
"""By place, over the scenario's facts: what is otherwise here, and why."""

EVENTS = {
    "file.watcher.updated": "files are not watched",
    "sync": "there is no other server here to keep in step",
    "plugin.added": "plugins are loaded before the first request is answered",
    "catalog.updated": "the catalogue changes with the configuration alone",
    "integration.updated": "providers have API keys",
    "reference.updated": "there are no references to other repositories",
    "message.part.delta": "sent to who asks for `parts=delta`; others get the whole part with its `delta`, as in 1.1",
    "server.heartbeat": "comes at each server's own times",
    "session.diff": "sent when the diff is another one",
    "message.part.updated:tool:completed": "an aborted command is a failed call; where one is completed, its place is compared",
    "session.next.*": "the second API's, sent by its own streams alone",
}
"""Events that OpenCode sends and this server does not, or not always, and why."""

EVENT_KEYS = {
    ".project": "a frame of the global stream names the directory alone",
    "*.tokens.total": DIFFERENCES["*.tokens.total"],
    "*.info.summary*": _DIFFS,
    "*.format.retryCount": "the format of a prompt is shown as it was sent",
    "*.metadata.display*": _READ,
    "*.metadata.loaded": _READ,
}
"""Keys of events that OpenCode has and this server has not, and why."""

UNORDERED = {"message.part.updated:tool:running", "message.part.updated:tool:completed"}
"""Here a call is stored as running before it asks or begins, in OpenCode meanwhile; calls of one step end in any order."""


def scenario(asks: Scenario) -> Scenario:
    SCENARIOS[asks.__name__] = asks
    return asks


@scenario
async def plain(side: Side) -> Facts:
    side.model.play(["Hello there."])
    created = await side.post("/session", {"title": "Compared", "metadata": {"a": 1}})
    session = created["body"]["id"]
    return {"created": created, "answer": await side.prompt(session), **await side.all_of(session)}


@scenario
async def titled(side: Side) -> Facts:
    side.model.play([Reasoning("Hm."), "Yes."])
    session = (await side.post("/session"))["body"]["id"]
    answer = await side.prompt(session)

    async def has_title() -> bool:
        return bool((await side.get(f"/session/{session}"))["title"] == ModelServer.TITLE)

    await side.until(has_title)
    return {"answer": answer, **await side.all_of(session)}


@scenario
async def tools(side: Side) -> Facts:
    read = ("read", {"filePath": side.file("a.txt")})
    edit = ("edit", {"filePath": side.file("a.txt"), "oldString": "hello", "newString": "bye"})
    write = ("write", {"filePath": side.file("b.txt"), "content": "new\n"})
    side.model.play(["Reading.", PAUSE, read], [PAUSE, edit], [PAUSE, write, ("grep", {"pattern": "world"})], ["Done."])
    session = await side.session()
    answer, facts = await side.prompt(session), await side.all_of(session)
    prompt = facts["messages"][0]["info"]["id"]
    return {"answer": answer, **facts, "diff": await side.get(f"/session/{session}/diff?messageID={prompt}")}


def prompted(name: str, turns: list[list[Step]], session: Facts | None = None, **wanted: Any) -> None:
    """A prompt with its answer."""

    async def asks(side: Side) -> Facts:
        side.model.play(*turns)
        made = await side.session(**(session or {}))
        return {"answer": await side.prompt(made, **wanted), **await side.all_of(made)}

    SCENARIOS[name] = asks


READ, TODO = ("read", {"filePath": "none.txt"}), {"content": "do it", "status": "pending", "priority": "high", "id": "1"}
prompted("failing_calls", [[PAUSE, READ], [("read", {})], [("nothing", {})], ["Done."]])
prompted("retried", [[Refusal(429, {"retry-after-ms": "200"})], ["Finally."]])
prompted("without_an_answer", [], noReply=True, messageID="msg_0123456789abABCDEFGHIJKLMN")
prompted("todos", [[PAUSE, ("todowrite", {"todos": [TODO]})], ["Done."]])


def asking(name: str, call: Step, route: str, reply: Facts) -> None:
    """A turn that waits for a reply."""
    kind = route.partition("/")[0]

    async def asks(side: Side) -> Facts:
        side.model.play(["x", PAUSE, call], ["Done."])
        session = await side.session()
        prompt = asyncio.create_task(side.prompt(session))
        asked = await side.asked(kind, session)
        replied = await side.post(f"/{kind}/{asked['id']}/{route.partition('/')[2]}", reply)
        return {"asked": asked, "replied": replied, "answer": await prompt, **await side.all_of(session)}

    SCENARIOS[name] = asks


COMMAND = ("bash", {"command": "echo hi > c.txt && git status", "description": "Writes"})
QUESTIONS = ("question", {"questions": [QUESTION]})
asking("permission_once", COMMAND, "permission/reply", {"reply": "once"})
asking("permission_rejected", COMMAND, "permission/reply", {"reply": "reject"})
asking("permission_rejected_with_a_reason", COMMAND, "permission/reply", {"reply": "reject", "message": "Use ls"})
asking("question_answered", QUESTIONS, "question/reply", {"answers": [["A"]]})
asking("question_rejected", QUESTIONS, "question/reject", {})


@scenario
async def aborted(side: Side) -> Facts:
    side.model.play([PAUSE, ("bash", {"command": "echo begun; sleep 60", "description": "Sleeps"})])
    session = await side.session(permission=[{"permission": "bash", "pattern": "*", "action": "allow"}])
    prompt = asyncio.create_task(side.prompt(session))

    async def has_begun() -> bool:
        parts = [part for message in await side.get(f"/session/{session}/message") for part in message["parts"]]
        return any("begun" in (part.get("state", {}).get("metadata") or {}).get("output", "") for part in parts)

    await side.until(has_begun)
    reply = await side.post(f"/session/{session}/abort")
    return {"reply": reply, "answer": await prompt, **await side.all_of(session)}


@scenario
async def refused_by_the_provider(side: Side) -> Facts:
    side.model.play([Refusal(400)])
    session = await side.session()
    answer = await side.prompt(session)
    return {"status": answer["status"], "error": answer["body"]["info"]["error"]["name"], "children": []}


@scenario
async def compacted(side: Side) -> Facts:
    side.model.play(["One."], ["A summary."], ["After."])
    session = await side.session()
    await side.prompt(session)
    reply = await side.post(f"/session/{session}/summarize", MODEL)
    return {"reply": reply, "answer": await side.prompt(session), **await side.all_of(session)}


@scenario
async def forked(side: Side) -> Facts:
    side.model.play(["One."], ["Two."])
    session = await side.session(metadata={"a": 1})
    await side.prompt(session)
    await side.prompt(session)
    second = (await side.get(f"/session/{session}/message"))[2]["info"]["id"]
    whole, part = await side.post(f"/session/{session}/fork"), await side.post(f"/session/{session}/fork", {"messageID": second})
    copies = [await side.all_of(each["body"]["id"]) for each in (whole, part)]
    return {"forked": {"whole": whole, "part": part, "copies": copies}}


@scenario
async def reverted(side: Side) -> Facts:
    write = ("write", {"filePath": side.file("d.txt"), "content": "one\n"})
    side.model.play([PAUSE, write], ["Done."], ["Anew."])
    session = await side.session()
    await side.prompt(session)
    prompt = (await side.all_of(session))["messages"][0]["info"]["id"]
    revert = await side.post(f"/session/{session}/revert", {"messageID": prompt})
    facts = {
        "revert": revert,
        "reverted": await side.all_of(session),
        "unrevert": await side.post(f"/session/{session}/unrevert"),
    }
    await side.post(f"/session/{session}/revert", {"messageID": prompt})
    return {**facts, "answer": await side.prompt(session), **await side.all_of(session)}


def posted(name: str, body: Facts, *turns: list[Step]) -> None:
    """To a route of a session of that name."""

    async def asks(side: Side) -> Facts:
        side.model.play(*turns)
        session = await side.session()
        return {"reply": await side.post(f"/session/{session}/{name}", body), **await side.all_of(session)}

    SCENARIOS[name] = asks


posted("shell", {"agent": "build", "command": "echo from the shell"})
posted("command", {"command": "hello", "arguments": "World"}, ["Hello."])


@scenario
async def subagent(side: Side) -> Facts:
    call = ("task", {"description": "look", "prompt": "Look around", "subagent_type": "general"})
    side.model.play(["x", PAUSE, call], ["The child says."], ["Done."])
    session = await side.session()
    answer, facts = await side.prompt(session), await side.all_of(session)
    children = facts.pop("children")
    return {"answer": answer, **facts, "children": children, "child": await side.all_of(children[0]["id"])}


@scenario
async def structured(side: Side) -> Facts:
    side.model.play([("StructuredOutput", {"city": "Bern"})])
    session = await side.session()
    return {"answer": await side.prompt(session, format={"type": "json_schema", "schema": SCHEMA})}  # OpenCode cannot list it


@scenario
async def all_kinds_of_parts(side: Side) -> Facts:
    parts = [
        {"type": "text", "text": "See", "metadata": {"k": 1}},
        {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": f"file://{side.file('a.txt')}"},
        {"type": "agent", "name": "general"},
        {"type": "text", "text": "Made up", "synthetic": True},
    ]
    side.model.play(["Done."])
    session = await side.session()
    wanted = {"system": "Be kind", "tools": {"bash": False}, "variant": "high", "agent": "plan", "model": MODEL}
    return {"answer": await side.prompt(session, parts=parts, **wanted), **await side.all_of(session)}


@scenario
async def changed(side: Side) -> Facts:
    session = await side.session(permission=[{"permission": "webfetch", "pattern": "*", "action": "deny"}])
    allow = [{"permission": "bash", "pattern": "*", "action": "allow"}]
    changes = ({"title": "New"}, {"metadata": {"b": 2}}, {"permission": allow}, {"time": {"archived": 5}}, {})
    answers = [await side.call("PATCH", f"/session/{session}", change) for change in changes]
    deleted = await side.call("DELETE", f"/session/{session}")
    return {"changed": answers, "deleted": deleted, "gone": await side.call("GET", f"/session/{session}")}


@scenario
async def wrong(side: Side) -> Facts:
    session = await side.session()
    asked = {
        "no session": ("GET", f"/session/{NO_SESSION}", None),
        "no session to change": ("PATCH", f"/session/{NO_SESSION}", {"title": "x"}),
        "no session to prompt": ("POST", f"/session/{NO_SESSION}/message", {"parts": []}),
        "no session to fork": ("POST", f"/session/{NO_SESSION}/fork", {}),
        "no message": ("GET", f"/session/{session}/message/{NO_MESSAGE}", None),
        "no message to revert": ("GET", f"/session/{session}/message/nope", None),
        "no parts": ("POST", f"/session/{session}/message", {}),
        "a part of no kind": ("POST", f"/session/{session}/message", {"parts": [{"type": "zap"}]}),
        "a text without text": ("POST", f"/session/{session}/message", {"parts": [{"type": "text"}]}),
        "a title that is none": ("PATCH", f"/session/{session}", {"title": 5}),
        "no permission": ("POST", "/permission/per_none/reply", {"reply": "once"}),
        "no reply": ("POST", "/permission/per_none/reply", {"reply": "zap"}),
        "no question": ("POST", "/question/que_none/reject", {}),
        "no project": ("PATCH", "/project/none", {"name": "x"}),
        "no terminal": ("GET", "/pty/pty_none", None),
        "no session of the second API": ("GET", f"/api/session/{NO_SESSION}", None),
        "no prompt of the second API": ("POST", f"/api/session/{session}/prompt", {}),
    }
    return {name: _without_words(await side.call(*each)) for name, each in asked.items()}


def _without_words(answer: Any) -> Any:
    """Each server says in its own words what is wrong."""
    if isinstance(answer, dict):
        return {name: "<words>" if name == "message" else _without_words(value) for name, value in answer.items()}
    return answer


@scenario
async def second_api(side: Side) -> Facts:
    side.model.play([PAUSE, ("read", {"filePath": side.file("a.txt"), "path": side.file("a.txt")})], ["Words."])
    created = await side.post("/api/session", {"agent": "build", "model": {"providerID": "fake", "id": "main"}})
    session = created["body"]["data"]["id"]
    prompted = await side.post(f"/api/session/{session}/prompt", {"prompt": {"text": "Hi"}})

    async def answered() -> Any:
        messages = (await side.get(f"/api/session/{session}/message?order=asc"))["data"]
        return messages if len(messages) == 3 and messages[-1]["time"].get("completed") else None

    facts = {"created2": created, "prompted": prompted, "messages2": await side.until(answered)}
    return facts | {"history": (await side.get(f"/api/session/{session}/history"))["data"]}


@pytest.fixture(scope="module")
def recorded(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Facts]:
    """Of each scenario what OpenCode and what this server answered and announced."""
    with opencode(node_modules, tmp_path_factory) as theirs, this_server(tmp_path_factory) as ours:
        return asyncio.run(run_both(theirs, ours))


async def run_both(*servers: tuple[RunningServer, ModelServer]) -> tuple[Facts, Facts]:
    theirs, ours = await asyncio.gather(*(run(*server) for server in servers))
    return theirs, ours


async def run(server: RunningServer, model: ModelServer) -> Facts:
    async with httpx2.AsyncClient(base_url=server.base, timeout=120) as http:
        side = Side(http, server.workspace.resolve(), model)
        async with side.listening():
            return {name: await _facts(side, asks) for name, asks in SCENARIOS.items()}


async def _facts(side: Side, asks: Scenario) -> Facts:
    begins = {stream: len(side.events[stream]) for stream in STREAMS}
    facts = comparable(await asks(side), side.workspace)
    return {"facts": facts, "told": {stream: told(side.events[stream][begin:]) for stream, begin in begins.items()}}


def is_one_of(place: str, known: Iterable[str]) -> bool:
    return any(fnmatch(place, pattern) or fnmatch(place, f"*.{pattern}") for pattern in known)


def test_every_known_difference_is_there(recorded: tuple[Facts, Facts]) -> None:
    places = [each.place for name in SCENARIOS for each in differences(*(side[name]["facts"] for side in recorded))]
    needless = [known for known in DIFFERENCES if not any(is_one_of(place, [known]) for place in places)]
    assert needless == [], "these are alike now: delete their rows"


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_and_events_are_opencodes_and_come_in_its_order(recorded: tuple[Facts, Facts], name: str) -> None:
    theirs, ours = (side[name] for side in recorded)
    found = [each for each in differences(theirs["facts"], ours["facts"]) if not is_one_of(each.place, DIFFERENCES)]
    assert found == [], "\n".join(map(str, found))
    for stream in STREAMS:
        there, here = (side["told"][stream]["keys"] for side in (theirs, ours))
        assert [kind for kind in there.keys() - here.keys() if not is_one_of(kind, EVENTS)] == []
        lacking = {kind: dict(there[kind].items() - here[kind].items()) for kind in there.keys() & here.keys()}
        assert [(kind, key) for kind, keys in lacking.items() for key in keys if not is_one_of(key, EVENT_KEYS)] == []
    there, here = (side["told"]["/event"] for side in (theirs, ours))
    both = (there["keys"].keys() & here["keys"].keys()) - UNORDERED
    assert [kind for kind in here["order"] if kind in both] == [kind for kind in there["order"] if kind in both]
