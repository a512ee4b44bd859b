"""Data directories of OpenCode: recorded ones of real versions, and older layouts made of them."""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

VERSIONS = ("1.1.34", "1.18.33")
RECORDED_DIRECTORY = "/home/ada/notes"
_ARCHIVES = Path(__file__).with_name("opencode_data")


def unpack(version: str, data: Path, workspace: Path | str = RECORDED_DIRECTORY) -> Path:
    """What a version recorded, as if its project had been in `workspace`."""
    with tarfile.open(_ARCHIVES / f"{version}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    for head in data.glob("snapshot/**/HEAD"):
        (head.parent / "refs").mkdir()  # an archive of files has no empty directories
    for path in data.rglob("*.json"):
        path.write_text(path.read_text().replace(RECORDED_DIRECTORY, str(workspace)))
    if (data / "opencode.db").exists():
        _move_rows(data / "opencode.db", str(workspace))
    return data


def _move_rows(path: Path, workspace: str) -> None:
    with sqlite3.connect(path) as database:
        for table in [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
            for column in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
                change = f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?) WHERE typeof("{column}") = \'text\''
                database.execute(change, (RECORDED_DIRECTORY, workspace))
    database.close()


NEWER = ("path", "cost", "tokens")


def answers(data: Path) -> dict[str, Any]:
    return json.loads((data / "answers.json").read_text())


def as_shown_here(version: str, kind: str, answer: Any) -> Any:
    """An answer of a recorded version in the shape that this server has. A session is without what 1.1.34 has not of it."""
    if version == "1.1.34":
        return answer
    match kind:
        case "session":
            return without_newer(answer)
        case "todo":
            return [{**todo, "id": str(position + 1)} for position, todo in enumerate(answer)]
        case _:
            return [{**message, "info": _message(message["info"])} for message in answer]


def without_newer(session: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name not in NEWER}


def newer_fields(version: str, session: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What 1.18.33 shows of a session beyond 1.1.34, or would show of one with these messages."""
    if version != "1.1.34":
        return {**{name: session[name] for name in NEWER}, "cost": round(session["cost"], 12)}
    steps = [part for message in messages for part in message["parts"] if part["type"] == "step-finish"]
    tokens: dict[str, Any] = {name: sum(step["tokens"][name] for step in steps) for name in ("input", "output", "reasoning")}
    tokens["cache"] = {name: sum(step["tokens"]["cache"][name] for step in steps) for name in ("read", "write")}
    return {"path": "", "cost": round(sum(step["cost"] for step in steps), 12), "tokens": tokens}


def _message(info: dict[str, Any]) -> dict[str, Any]:
    if info["role"] == "assistant" or "summary" not in info:
        return info
    return {**info, "summary": {**info["summary"], "diffs": [_as_texts(diff) for diff in info["summary"]["diffs"]]}}


def _as_texts(diff: dict[str, Any]) -> dict[str, Any]:
    lines = diff["patch"].split("@@\n", 1)[1].splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    return {**diff, "before": before, "after": after}


def state_of(data: Path) -> list[tuple[str, int, bytes]]:
    """Every file with its time of change and its content."""
    found = sorted(data.rglob("*"))
    return [(str(path), path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in found]


def session_file(data: Path, session_id: str) -> Path:
    return next((data / "storage" / "session").glob(f"*/{session_id}.json"))


def edit(path: Path, /, **changes: Any) -> None:
    """Changes fields of a JSON file; None removes one."""
    value = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: kept for name, kept in value.items() if kept is not None}))


def with_inline_diffs(data: Path) -> None:
    """As it was before the second migration: a session's diff is part of it."""
    for path in (data / "storage" / "session").glob("*/*.json"):
        diff = data / "storage" / "session_diff" / path.name
        if diff.exists():
            diffs = json.loads(diff.read_text())
            summary = json.loads(path.read_text()).get("summary", {"additions": 0, "deletions": 0})
            edit(path, summary={**{name: summary[name] for name in ("additions", "deletions")}, "diffs": diffs})
            diff.unlink()
    (data / "storage" / "migration").write_text("1")


def by_project(data: Path, *, inline_parts: bool = False) -> None:
    """As it was before the first migration: a directory for each project, and nothing in a session names it. With `inline_parts`
    as it was even before, with the parts in their message."""
    storage, project = data / "storage", data / "project" / "home-ada-notes" / "storage" / "session"
    for old in (storage / "session").glob("*/*.json"):
        _put(project / "info" / old.name, json.loads(old.read_text()))
        edit(project / "info" / old.name, projectID=None, directory=None, slug=None)
        for message in sorted((storage / "message" / old.stem).glob("*.json")):
            parts = [json.loads(path.read_text()) for path in sorted((storage / "part" / message.stem).glob("*.json"))]
            inline = {"parts": parts} if inline_parts else {}
            _put(project / "message" / old.stem / message.name, {**json.loads(message.read_text()), **inline})
            for part in () if inline_parts else parts:
                _put(project / "part" / old.stem / message.stem / f"{part['id']}.json", part)
    for path in sorted(storage.rglob("*"), key=lambda path: -len(path.parts)):  # the deepest first
        path.rmdir() if path.is_dir() else path.unlink()


def _put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def generate(data: Path, sessions: int, turns: int, directory: str = RECORDED_DIRECTORY) -> Path:
    """The storage of 1.1 with so many sessions of so many turns, each a prompt and an answer that calls a tool."""
    storage = data / "storage"
    _put(storage / "project" / "global.json", {"id": "global", "worktree": "/", "time": {"created": 1, "updated": 1}})
    for number in range(sessions):
        session = f"ses_{number:012}"
        time = {"created": 1_700_000_000_000 + number, "updated": 1_700_000_000_000 + number}
        info = {"id": session, "slug": "a", "projectID": "global", "directory": directory, "title": f"Session {number}"}
        _put(storage / "session" / "global" / f"{session}.json", {**info, "version": "1.1.34", "time": time})
        for turn in range(turns):
            _put_turn(storage, session, f"{number:06}{turn:06}", directory, time["created"] + 10 * turn)
    return data


def _put_turn(storage: Path, session: str, turn: str, directory: str, now: int) -> None:
    prompt, answer = f"msg_{turn}a", f"msg_{turn}b"
    model = {"providerID": "fake", "modelID": "main"}
    step = {"cost": 0, "tokens": {"input": 10, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}}
    place = {"parentID": prompt, "mode": "build", "agent": "build", "path": {"cwd": directory, "root": "/"}, "finish": "stop"}
    messages = {
        prompt: {"role": "user", "time": {"created": now}, "agent": "build", "model": model},
        answer: {
            "role": "assistant",
            "time": {"created": now + 1, "completed": now + 9},
            "agent": "build",
            **place,
            **step,
            **model,
        },
    }
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a.txt\n" * 40, "title": "ls", "metadata": {}}
    parts: dict[str, list[dict[str, Any]]] = {
        prompt: [{"type": "text", "text": f"Prompt {turn}: what is in here?"}],
        answer: [
            {"type": "step-start"},
            {"type": "tool", "callID": "c", "tool": "bash", "state": {**state, "time": {"start": now + 2, "end": now + 3}}},
            {"type": "text", "text": f"Answer {turn}. " * 20, "time": {"start": now + 4, "end": now + 8}},
            {"type": "step-finish", "reason": "stop", **step},
        ],
    }
    for message, info in messages.items():
        _put(storage / "message" / session / f"{message}.json", {"id": message, "sessionID": session, **info})
        for position, part in enumerate(parts[message]):
            ids = {"id": f"prt_{turn}{message[-1]}{position}", "sessionID": session, "messageID": message}
            _put(storage / "part" / message / f"{ids['id']}.json", {**ids, **part})


SESSION_V2 = """
CREATE TABLE session_v2 (
    id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text, fork_session_id text, fork_boundary text,
    slug text NOT NULL, directory text NOT NULL, path text, title text, version text NOT NULL, share_url text,
    summary_additions integer, summary_deletions integer, summary_files integer, summary_diffs text, metadata text,
    cost real DEFAULT 0 NOT NULL, tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
    tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
    tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, permission text, agent text, model text,
    time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer,
    time_suspended integer, resume_attempts integer DEFAULT 0 NOT NULL, time_idle integer, time_viewed integer, idle_outcome text
)
"""
"""As OpenCode 2.0.3 has it."""

MOVED = """
INSERT INTO session_v2 (id, project_id, slug, directory, title, version, time_created, time_updated)
SELECT id, project_id, slug, directory, title, '2.0.3', time_created, time_updated FROM session
"""


def taken_over(data: Path, *statements: str) -> Path:
    """The data directory of 1.18 when OpenCode 2 has begun to use it: the same file, with `session_v2`."""
    with closing(sqlite3.connect(data / "opencode.db")) as database, database:
        for statement in (SESSION_V2, *statements):
            database.execute(statement)
    return data
