"""The rules of the scripted provider: it executes the user's last message as a command.

It says that it is no language model. It shows streaming, tools, permissions and revert on a first run without a key, and gives
client developers a deterministic backend.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, product, takewhile
from pathlib import PurePath
from typing import Any

from app.providers.base import AssistantTurn, ModelMessage, ModelRequest, TextBlock, ToolResultBlock, ToolTurn, UserTurn
from app.providers.scripted import Call, Fail, Say, ScriptedProvider, ScriptedStep, ScriptedTurn, SetUsage

WORD_SECONDS = 0.015
"""Seconds between words: slow enough to show streaming."""

MAX_TOKENS = 20_000
_CHARACTERS_A_TOKEN = 4
_TITLE_WORDS = 8

_SENT_DURING_TURN = re.compile(r"<system-reminder>\n[^\n]+:\n(.*)\n\n[^\n]+\n</system-reminder>", re.DOTALL)
"""Messages that the user sends during a turn are wrapped in a reminder."""
_MUST_BE_READ = "You must read"
"""The beginning of the error with which `edit` and `write` reject a file that the session has not read."""

HELP = """\
I am the scripted provider: no language model, only a few rules. I am here because no API key is set, so that you can try the \
server, its tools, permissions and revert.

What I understand:

- `list files`
- `read PATH`: outside the project, such as `/etc/hosts`, it asks for permission first
- `write PATH: CONTENT`
- `edit PATH: OLD -> NEW`
- `run COMMAND`
- `todo ITEM, ITEM, …`
- `ask QUESTION: ANSWER, ANSWER, …`
- `answer JSON`: a structured answer, where the prompt's `format` asks for one
- `think`: reasoning before the answer
- `long N`: an answer of N tokens
- `fail STATUS`: a failed request, for example `fail 429` (retried) or `fail 400`
- `help`

For real answers set an API key, for example `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, or configure a provider in `opencode.json`.\
"""


def rules_provider(turns: list[ScriptedTurn] | None = None) -> ScriptedProvider:
    """Plays `turns`, then answers by rules."""
    return ScriptedProvider(turns or (), otherwise=answer, title=title, keeps_requests=False)


def answer(request: ModelRequest) -> ScriptedTurn:
    """Reports tool results, else executes the user's command."""
    last = next((message for message in reversed(request.messages) if not isinstance(message, AssistantTurn)), None)
    if isinstance(last, ToolTurn):
        steps = _second_step(request, last) or (_speak("\n".join(map(_report, last.content))),)
    else:
        steps = _execute(request, last)
    return (*steps, _usage(request, steps))


def title(request: ModelRequest) -> ScriptedTurn:
    """The first words of the user's message."""
    words = next((text for message in reversed(request.messages) for text in _texts(message)), "").split()
    return (Say(" ".join(words[:_TITLE_WORDS])[:50] or "New session", chunks=1),)


def _texts(message: ModelMessage | None) -> Iterator[str]:
    """The texts of a user's message, as they were typed."""
    for block in message.content if isinstance(message, UserTurn) else ():
        if isinstance(block, TextBlock) and block.text.strip():
            found = _SENT_DURING_TURN.fullmatch(block.text)
            yield found[1] if found else block.text


def _execute(request: ModelRequest, message: ModelMessage | None) -> ScriptedTurn:
    """Executes the first text that is a command: a message may also contain reminders and files."""
    texts = list(_texts(message))
    for text, (pattern, rule) in product(texts, _RULES):
        if found := pattern.fullmatch(text.strip()):
            return rule(request, *found.groups())
    return (_speak(f"“{_short(texts[0])}” is not a command I know.\n\n{HELP}" if texts else HELP),)


def _write(request: ModelRequest, path: str, content: str) -> ScriptedTurn:
    lines = "\n".join(f"+{line}" for line in content.split("\n"))
    patch = f"*** Begin Patch\n*** Add File: {PurePath(path)}\n{lines}\n*** End Patch"
    choices = {"write": {"filePath": path, "content": content}, "apply_patch": {"patchText": patch}}
    return _use(request, f"I will write {path}.", choices)


def _edit(request: ModelRequest, path: str, old: str, new: str) -> ScriptedTurn:
    """Reads the file first, because `edit` rejects a file that the session has not read. The edit is the second step."""
    edit = Call("edit", {"filePath": path, "oldString": old, "newString": new})
    done = _done_since_user(request)
    if "edit" in done:
        return ()
    if "read" in done and "edit" in _offered(request):
        return (_speak("Now I will edit it."), edit)
    first_tool = "read" if "edit" in _offered(request) else "edit"
    return _use(request, f"I will read {path}, then edit it.", {first_tool: {"filePath": path}})


def _overwrite(request: ModelRequest, results: ToolTurn, path: str, content: str) -> ScriptedTurn:
    """Reads an existing file first, because `write` rejects a file that the session has not read."""
    last = results.content[-1]
    if last.tool == "read":
        return (_speak("Now I will write it."), Call("write", {"filePath": path, "content": content}))
    if not last.is_error or "read" in _done_since_user(request):
        return ()
    return (_speak("The file exists, so I will read it first."), Call("read", {"filePath": path}))


def _done_since_user(request: ModelRequest) -> set[str]:
    """The tools that have completed since the user's last message."""
    since = takewhile(lambda message: not isinstance(message, UserTurn), reversed(request.messages))
    return {result.tool for message in since if isinstance(message, ToolTurn) for result in message.content}


def _todo(request: ModelRequest, items: str) -> ScriptedTurn:
    todos = [
        {"id": str(number), "content": item.strip(), "status": "pending", "priority": "medium"}
        for number, item in enumerate(items.split(","), start=1)
        if item.strip()
    ]
    return _use(request, f"I will note {len(todos)} items.", {"todowrite": {"todos": todos}})


def _ask(request: ModelRequest, question: str, answers: str) -> ScriptedTurn:
    options = [{"label": answer.strip(), "description": "One of the answers"} for answer in answers.split(",") if answer.strip()]
    asked = {"question": question, "header": "Question", "options": options}
    return _use(request, "I will ask you.", {"question": {"questions": [asked]}})


def _answer(request: ModelRequest, fields: str) -> ScriptedTurn:
    return (Call("StructuredOutput", {}, raw=fields),) if "StructuredOutput" in _offered(request) else (_speak(fields),)


def _think(request: ModelRequest) -> ScriptedTurn:
    thought = "The user asks me to think. I have no thoughts, but I can show where they would be."
    return (replace(_speak(thought), kind="reasoning"), _speak("I have thought about it: I am a list of rules."))


def _long(request: ModelRequest, count: str) -> ScriptedTurn:
    tokens = min(int(count), MAX_TOKENS)
    return (Say("".join(f"tok{number} ".ljust(8) for number in range(tokens)), chunks=tokens),)


def _fail(request: ModelRequest, status: str) -> ScriptedTurn:
    body = f'{{"error":{{"message":"asked to fail with {status}"}}}}'
    return (Fail(int(status), {"retry-after-ms": "1000"}, body, f"You asked me to fail with {status}."),)


_WRITE = re.compile(r"write ([^\s:]+): ?(.*)", re.IGNORECASE | re.DOTALL)
_EDIT = re.compile(r"edit ([^\s:]+): ?(.+?) ?-> ?(.*)", re.IGNORECASE | re.DOTALL)

_LISTING: Mapping[str, Mapping[str, Any]] = {
    "list": {},
    "glob": {"pattern": "*"},
    "bash": {"command": "ls", "description": "Runs ls"},
}

PromptRule = Callable[..., ScriptedTurn]
_RULES: tuple[tuple[re.Pattern[str], PromptRule], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), rule)
    for pattern, rule in (
        (r"help[.!?]?", lambda _: (_speak(HELP),)),
        (r"(?:list files|ls)[.!?]?", lambda request: _use(request, "I will list the files.", _LISTING)),
        (r"read (\S+)", lambda request, path: _use(request, f"I will read {path}.", {"read": {"filePath": path}})),
        (_WRITE.pattern, _write),
        (_EDIT.pattern, _edit),
        (r"run (.+)", lambda request, command: _use(request, f"I will run `{command}`.", {"bash": _bash(command)})),
        (r"todo:? (.+)", _todo),
        (r"ask ([^:]+): ?(.+)", _ask),
        (r"answer (\{.*\})", _answer),
        (r"think[.!?]?", _think),
        (r"long (\d{1,6})", _long),
        (r"fail ([45]\d\d)", _fail),
    )
)


def _use(request: ModelRequest, announcement: str, choices: Mapping[str, Mapping[str, Any]]) -> ScriptedTurn:
    """Calls the first of these tools that the agent has."""
    offered = _offered(request)
    tool = next((name for name in choices if name in offered), None)
    if tool is None:
        return (_speak(f"That needs the tool `{next(iter(choices))}`, which this agent does not have."),)
    return (_speak(announcement), Call(tool, choices[tool]))


def _offered(request: ModelRequest) -> set[str]:
    return {tool.id for tool in request.tools}


def _bash(command: str) -> dict[str, str]:
    return {"command": command, "description": f"Runs {_short(command)}"}


def _second_step(request: ModelRequest, results: ToolTurn) -> ScriptedTurn:
    """For an edit or a write over a file; every other command has one step."""
    if any(result.is_error and _MUST_BE_READ not in result.text for result in results.content):
        return ()
    user = next((message for message in reversed(request.messages) if isinstance(message, UserTurn)), None)
    texts = [text.strip() for text in _texts(user)]
    edits = (_edit(request, *found.groups()) for text in texts if (found := _EDIT.fullmatch(text)))
    writes = (_overwrite(request, results, *found.groups()) for text in texts if (found := _WRITE.fullmatch(text)))
    return next(chain(edits, writes), ())


def _report(result: ToolResultBlock) -> str:
    if result.is_error:
        return f"`{result.tool}` failed: {_short(result.text)}"
    lines = len(result.text.splitlines())
    return f"Done: `{result.tool}` succeeded ({lines} {'line' if lines == 1 else 'lines'} of output)."


def _speak(text: str) -> Say:
    return Say(text, chunks=len(text.split()), delay=WORD_SECONDS)


def _short(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 80 else f"{line[:79]}…"


def _usage(request: ModelRequest, steps: ScriptedTurn) -> ScriptedStep:
    """An estimate, so that clients have numbers to show."""
    blocks = (block for message in request.messages for block in message.content)
    sent = sum(map(len, request.system))
    sent += sum(len(block.text) for block in blocks if isinstance(block, TextBlock | ToolResultBlock))
    written = sum(len(step.text) for step in steps if isinstance(step, Say))
    return SetUsage({"input": sent // _CHARACTERS_A_TOKEN + 1, "output": written // _CHARACTERS_A_TOKEN + 1})
