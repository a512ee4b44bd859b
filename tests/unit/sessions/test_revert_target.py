"""What a revert takes back, decided from the conversation alone."""

from typing import Any

import pytest

from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.part import (
    Completed,
    CompletedTime,
    Ended,
    Failed,
    ModelRef,
    Part,
    PatchPart,
    Running,
    Started,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from app.sessions.revert_target import NO_SNAPSHOT, RevertTarget, find_target, reported_edits, unknown_changes

MODEL = ModelRef(provider_id="scripted", model_id="scripted")
A, B, C = "a" * 40, "b" * 40, "c" * 40


def of(part_id: str) -> dict[str, str]:
    return {"id": part_id, "session_id": "ses_1", "message_id": "msg_1"}


def user(message_id: str, *parts: Part) -> MessageWithParts:
    info = UserMessage(id=message_id, session_id="ses_1", time=UserTime(created=1), agent="build", model=MODEL)
    return MessageWithParts(info=info, parts=list(parts))


def answer(message_id: str, parent: str, *parts: Part) -> MessageWithParts:
    info = AssistantMessage(
        id=message_id,
        session_id="ses_1",
        time=AssistantTime(created=1, completed=2),
        parent_id=parent,
        model_id="scripted",
        provider_id="scripted",
        mode="build",
        agent="build",
        path=MessagePath(cwd="/w", root="/w"),
    )
    return MessageWithParts(info=info, parts=list(parts))


def text(part_id: str) -> TextPart:
    return TextPart(**of(part_id), text="hello")


def start(snapshot: str | None = A) -> StepStartPart:
    return StepStartPart(**of("prt_start"), snapshot=snapshot)


def finish(snapshot: str | None = A) -> StepFinishPart:
    return StepFinishPart(**of("prt_finish"), reason="tool-calls", snapshot=snapshot, cost=0, tokens=Tokens())


def patch(tree: str, *files: str) -> PatchPart:
    return PatchPart(**of(f"prt_patch_{tree[0]}"), hash=tree, files=list(files))


def call(tool: str, part_id: str = "prt_call", metadata: dict[str, Any] | None = None, **arguments: Any) -> ToolPart:
    time = CompletedTime(start=1, end=2)
    state = Completed(input=arguments, output="", title="", metadata=metadata or {}, time=time)
    return ToolPart(**of(part_id), call_id="call", tool=tool, state=state)


def failed(tool: str, **arguments: Any) -> ToolPart:
    state = Failed(input=arguments, error="Error: no", time=Ended(start=1, end=2))
    return ToolPart(**of("prt_failed"), call_id="call", tool=tool, state=state)


def target(*messages: MessageWithParts) -> RevertTarget:
    found = find_target([user("msg_0"), *messages], "msg_0", None)
    assert found is not None
    return found


HISTORY = [
    user("msg_u1", text("prt_u1")),
    answer("msg_a1", "msg_u1", start(), call("edit", "prt_e1"), finish(), patch(A, "/w/a")),
    answer("msg_a2", "msg_u1", start(), text("prt_t2"), call("edit", "prt_e2"), finish(), patch(B, "/w/b")),
    user("msg_u2", text("prt_u2"), text("prt_u2b")),
    answer("msg_a3", "msg_u2", start(), text("prt_t3")),
]


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
    found = find_target(HISTORY, message, part)
    assert found is not None
    assert (found.message_id, found.part_id) == expected
    assert len(found.undone) == undone


def unknown(*messages: MessageWithParts) -> list[str]:
    found = unknown_changes(target(*messages))
    assert {item.reason for item in found} <= {NO_SNAPSHOT}
    return [item.file for item in found]


@pytest.mark.parametrize(
    "parts",
    [
        [start(A), call("edit", filePath="/w/x"), finish(B), patch(A, "/w/x")],
        [start(A), call("edit", filePath="/w/x"), finish(A)],
        [start(A), call("bash", command="true")],
        [start(None), call("read", filePath="/w/x"), finish(None)],
        [start(None), failed("edit", filePath="/w/x"), finish(None)],
        [call("task", prompt="look"), patch(A, "/w/x")],
        [text("prt_t")],
    ],
    ids=["patch", "same tree", "aborted with snapshot", "reading tool", "failed edit", "subtask with patch", "no tool"],
)
def test_nothing_is_unknown_of(parts: list[Part]) -> None:
    assert unknown(answer("msg_a", "msg_0", *parts)) == []


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([start(None), call("write", filePath="/w/x"), finish(None)], ["/w/x"]),
        ([start(None), call("edit", filePath="x"), call("edit", filePath="x"), call("write", filePath="y")], ["x", "y"]),
        ([start(None), call("bash", command="rm x")], ["bash"]),
        ([start(None), failed("bash", command="rm x")], ["bash"]),
        ([call("bash", command="rm x")], ["bash"]),
        ([call("task", prompt="p")], ["task"]),
        ([start(A), call("edit", filePath="/w/x"), finish(None)], ["/w/x"]),
        ([start(A), call("edit", filePath="/w/x"), finish(B)], ["/w/x"]),
        ([start(None), call("apply_patch", metadata={"files": [{"filePath": "/w/a", "movePath": "/w/b"}]})], ["/w/a", "/w/b"]),
    ],
    ids=[
        "no snapshot",
        "each file once",
        "a command",
        "a failed command",
        "the user's shell",
        "a subtask",
        "no snapshot afterwards",
        "a change without a patch",
        "a patch's files",
    ],
)
def test_changes_without_a_snapshot_are_named(parts: list[Part], names: list[str]) -> None:
    assert unknown(answer("msg_a", "msg_0", *parts)) == names


def test_a_call_that_was_never_finished_is_not_named() -> None:
    state = Running(input={"filePath": "/w/x"}, time=Started(start=1))
    part = ToolPart(**of("prt_r"), call_id="call", tool="write", state=state)
    assert unknown(answer("msg_a", "msg_0", start(None), part)) == []


def test_edits_are_listed_with_the_snapshot_from_before_their_first_step() -> None:
    steps = [
        answer("msg_a", "msg_0", start(A), call("write", filePath="/w/x"), call("read", filePath="/w/r"), finish(A)),
        answer(
            "msg_b", "msg_0", start(B), call("edit", filePath="/w/x"), call("edit", filePath="y"), failed("edit", filePath="z")
        ),
        answer("msg_c", "msg_0", start(None), call("write", filePath="/w/without")),
        answer("msg_d", "msg_0", start(C), call("apply_patch", metadata={"files": "odd"})),
    ]
    assert reported_edits(target(*steps)) == {"/w/x": A, "y": B}


def test_edits_before_the_part_are_not_listed() -> None:
    parts = [start(A), call("write", "prt_1", filePath="/w/x"), call("write", "prt_2", filePath="/w/y"), finish(A)]
    found = find_target([user("msg_0"), answer("msg_a", "msg_0", *parts)], "msg_a", "prt_2")
    assert found is not None
    assert reported_edits(found) == {"/w/y": A}
