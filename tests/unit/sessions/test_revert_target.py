"""What a revert takes back, decided from the conversation alone."""

from typing import Any

import pytest
import session_parts

from app.schema import part as schema
from app.schema.message import Message, MessageWithParts
from app.schema.part import Part
from app.schema.session import Revert
from app.sessions.revert_target import NO_SNAPSHOT, RevertTarget, find_target, reported_edits, revert_state, unknown_changes

A, B, C = "a" * 40, "b" * 40, "c" * 40


def of(info: Message, *parts: Part) -> MessageWithParts:
    return MessageWithParts(info=info, parts=list(parts))


def user(message_id: str, *parts: Part) -> MessageWithParts:
    return of(session_parts.user(message_id), *parts)


def answer(message_id: str, parent: str, *parts: Part) -> MessageWithParts:
    return of(session_parts.assistant(message_id, parent), *parts)


def ids(part_id: str) -> dict[str, str]:
    return {"id": part_id, "session_id": "ses_1", "message_id": "msg_1"}


def text(part_id: str) -> Part:
    return session_parts.text_part(part_id, "hello")


def start(snapshot: str | None = A) -> Part:
    return schema.StepStartPart(**ids("prt_start"), snapshot=snapshot)


def finish(snapshot: str | None = A) -> Part:
    return schema.StepFinishPart(**ids("prt_end"), reason="tool-calls", snapshot=snapshot, cost=0, tokens=schema.Tokens())


def patch(tree: str, *files: str) -> Part:
    return schema.PatchPart(**ids(f"prt_patch_{tree[0]}"), hash=tree, files=list(files))


def call(tool: str, part_id: str = "prt_call", metadata: dict[str, Any] | None = None, **arguments: Any) -> Part:
    time = schema.CompletedTime(start=1, end=2)
    state = schema.Completed(input=arguments, output="", title="", metadata=metadata or {}, time=time)
    return schema.ToolPart(**ids(part_id), call_id="call", tool=tool, state=state)


def failed(tool: str, **arguments: Any) -> Part:
    state = schema.Failed(input=arguments, error="Error: no", time=schema.Ended(start=1, end=2))
    return schema.ToolPart(**ids("prt_failed"), call_id="call", tool=tool, state=state)


RUNNING = schema.Running(input={"filePath": "/w/x"}, time=schema.Started(start=1))
UNFINISHED = schema.ToolPart(**ids("prt_r"), call_id="call", tool="write", state=RUNNING)
PATCHED = call("apply_patch", metadata={"files": [{"filePath": "/w/a", "movePath": "/w/b"}]})
HISTORY = [
    user("msg_u1", text("prt_u1")),
    answer("msg_a1", "msg_u1", start(), call("edit", "prt_e1"), finish(), patch(A, "/w/a")),
    answer("msg_a2", "msg_u1", start(), text("prt_t2"), call("edit", "prt_e2"), finish(), patch(B, "/w/b")),
    user("msg_u2", text("prt_u2"), text("prt_u2b")),
    answer("msg_a3", "msg_u2", start(), text("prt_t3")),
]


def target(history: list[MessageWithParts], message: str = "msg_0", part: str | None = None) -> RevertTarget:
    found = find_target(history, message, part)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("message", "part", "expected", "undone"),
    [
        ("msg_u1", None, ("msg_u1", None), 5),
        ("msg_a1", None, ("msg_u1", None), 5),
        ("msg_a2", None, ("msg_u1", None), 5),
        ("msg_u2", None, ("msg_u2", None), 2),
        ("msg_a3", None, ("msg_u2", None), 2),
        ("msg_a1", "prt_e1", ("msg_u1", None), 5),
        ("msg_a2", "prt_t2", ("msg_u1", None), 5),
        ("msg_a2", "prt_e2", ("msg_a2", "prt_e2"), 3),
        ("msg_u2", "prt_u2", ("msg_u2", None), 2),
        ("msg_u2", "prt_u2b", ("msg_u2", "prt_u2b"), 2),
        ("msg_a3", "prt_t3", ("msg_u2", None), 2),
    ],
)
def test_a_revert_goes_back_to_a_prompt_or_to_a_part_with_something_before_it(
    message: str, part: str | None, expected: tuple[str, str | None], undone: int
) -> None:
    found = target(HISTORY, message, part)
    assert (found.message_id, found.part_id, len(found.undone)) == (*expected, undone)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        pytest.param([start(A), call("edit", filePath="/w/x"), finish(B), patch(A, "/w/x")], [], id="not of a patch"),
        pytest.param([start(A), call("edit", filePath="/w/x"), finish(A)], [], id="not with the same tree"),
        pytest.param([start(A), call("bash", command="true")], [], id="not of an abort with a snapshot"),
        pytest.param([start(None), call("read", filePath="/w/x"), finish(None)], [], id="not of a tool that reads"),
        pytest.param([start(None), failed("edit", filePath="/w/x"), finish(None)], [], id="not of a failed edit"),
        pytest.param([start(None), UNFINISHED], [], id="not of a call that was never finished"),
        pytest.param([call("task", prompt="look"), patch(A, "/w/x")], [], id="not of a subtask with a patch"),
        pytest.param([text("prt_t")], [], id="not without a tool"),
        pytest.param([start(None), call("write", filePath="/w/x"), finish(None)], ["/w/x"], id="without a snapshot"),
        pytest.param([start(None), call("edit", filePath="x"), call("write", filePath="x")], ["x"], id="each file once"),
        pytest.param([start(None), call("bash", command="rm x")], ["bash"], id="a command"),
        pytest.param([start(None), failed("bash", command="rm x")], ["bash"], id="a failed command"),
        pytest.param([call("bash", command="rm x")], ["bash"], id="the user's shell"),
        pytest.param([call("task", prompt="p")], ["task"], id="a subtask"),
        pytest.param([start(A), call("edit", filePath="/w/x"), finish(None)], ["/w/x"], id="without a snapshot afterwards"),
        pytest.param([start(A), call("edit", filePath="/w/x"), finish(B)], ["/w/x"], id="a change without a patch"),
        pytest.param([start(None), PATCHED], ["/w/a", "/w/b"], id="a patch's files"),
    ],
)
def test_changes_without_a_snapshot_are_named(parts: list[Part], names: list[str]) -> None:
    found = unknown_changes(target([user("msg_0"), answer("msg_a", "msg_0", *parts)]))
    assert [(item.file, item.reason) for item in found] == [(name, NO_SNAPSHOT) for name in names]


def test_edits_are_listed_with_the_snapshot_from_before_their_first_step() -> None:
    edits = call("edit", filePath="/w/x"), call("edit", filePath="y"), failed("edit", filePath="z")
    steps = [
        answer("msg_a", "msg_0", start(A), call("write", filePath="/w/x"), call("read", filePath="/w/r"), finish(A)),
        answer("msg_b", "msg_0", start(B), *edits),
        answer("msg_c", "msg_0", start(None), call("write", filePath="/w/without")),
        answer("msg_d", "msg_0", start(C), call("apply_patch", metadata={"files": "odd"})),
    ]
    assert reported_edits(target([user("msg_0"), *steps])) == {"/w/x": A, "y": B}
    parts = [start(A), call("write", "prt_1", filePath="/w/x"), call("write", "prt_2", filePath="/w/y"), finish(A)]
    behind = target([user("msg_0"), answer("msg_a", "msg_0", *parts)], "msg_a", "prt_2")
    assert reported_edits(behind) == {"/w/y": A}, "those before the part are not listed"


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ("a/with space b/with space\nindex 1..2 100644\n--- a/with space\t\n+++ b/with space\t", "with space"),
        (r'"a/a\"\tü" "b/a\"\tü"', 'a"\tü'),
        (r'"a/\303\274" "b/\303\274"', "ü"),
        ("a/old b/new name\nsimilarity index 90%\nrename from old\nrename to new name", "new name"),
        ("a/b/it differ b/b/it differ\nBinary files a/b/it differ and b/b/it differ differ", "b/it differ"),
        (r'"a/\u20ac" "b/\u20ac"', r'"b/\u20ac"'),
        ("", ""),
    ],
)
def test_files_of_a_diff_have_their_own_names_and_its_lines(header: str, path: str) -> None:
    diff = f"diff --git {header}\n@@ -1 +1,2 @@\n-old\n+a\r+b\x0c+c\n+d\n"
    (file,) = revert_state(Revert(message_id="msg_0", diff=diff)).files or []
    assert (file.path, file.additions, file.deletions) == (path, 2, 1)


def test_the_first_thousand_files_of_a_diff_are_listed() -> None:
    files = revert_state(Revert(message_id="msg_0", diff="diff --git a/x b/x\n" * 1500)).files or []
    assert len(files) == 1000 and {file.path for file in files} == {"x"} and len(files[-1].patch) == len(files[0].patch)
