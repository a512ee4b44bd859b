"""What is read of every layout that OpenCode has had, and of damaged ones."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_source import (
    RECORDED_DIRECTORY,
    VERSIONS,
    answers,
    as_shown_here,
    by_project,
    edit,
    session_file,
    state_of,
    unpack,
    with_inline_diffs,
    without_newer,
)

from app.transfer.document import SessionHistory
from app.transfer.opencode.database import DatabaseInUse, NoOpenCodeData, copy_database, default_directory, readers_of
from app.transfer.opencode.history import history_of
from app.transfer.opencode.records import Problem

Histories = dict[str, SessionHistory]


def read(data: Path) -> tuple[Histories, list[Problem]]:
    histories: Histories = {}
    problems: list[Problem] = []
    with readers_of(data) as readers:
        for reader in readers:
            for session in reader.sessions():
                reader.read(session)
                history, found = history_of(session)
                problems += found
                if history:
                    histories[history.info.id] = history
            problems += [*reader.problems, *reader.orphans()]
    return histories, problems


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return unpack("1.1.34", tmp_path / "opencode")


@pytest.fixture
def session(data: Path) -> str:
    """The one with many tools."""
    return str(answers(data)["names"]["tools"])


def wire(history: SessionHistory) -> list[dict[str, Any]]:
    return [message.wire() for message in history.messages]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_real_version_stored_is_read_as_it_showed_it(version: str, tmp_path: Path) -> None:
    data = unpack(version, tmp_path / "opencode")
    shown, (histories, problems) = answers(data), read(data)
    assert problems == []
    assert set(histories) == {session["id"] for session in shown["sessions"]}
    for session_id, history in histories.items():
        assert without_newer(history.info.wire()) == as_shown_here(version, "session", shown["one"][session_id])
        assert wire(history) == as_shown_here(version, "messages", shown["messages"][session_id])
        assert [todo.wire() for todo in history.todo] == as_shown_here(version, "todo", shown["todo"][session_id])
    reverted = histories[shown["names"]["revert"]].diff
    assert [(diff.file, diff.before, diff.after) for diff in reverted][:1] == [("rev.txt", "one\n", "uno\n")]


def test_a_diff_within_its_session_is_read(data: Path) -> None:
    now, _ = read(data)
    with_inline_diffs(data)
    before, problems = read(data)
    assert problems == []
    assert {each: history.diff for each, history in before.items()} == {each: history.diff for each, history in now.items()}
    assert sum(len(history.diff) for history in before.values()) > 1


@pytest.mark.parametrize("inline_parts", [False, True])
def test_the_oldest_layouts_are_read(data: Path, inline_parts: bool) -> None:
    now, _ = read(data)
    by_project(data, inline_parts=inline_parts)
    before, problems = read(data)
    assert problems == []
    assert set(before) == set(now)
    for session_id, history in before.items():
        assert history.info.directory == RECORDED_DIRECTORY
        if not inline_parts:
            assert wire(history) == wire(now[session_id])
        else:
            assert [len(message.parts) for message in history.messages] == [len(each.parts) for each in now[session_id].messages]


def test_fields_of_later_versions_are_completed(data: Path, session: str) -> None:
    now, _ = read(data)
    for path in (data / "storage" / "message" / session).glob("*.json"):
        edit(path, agent=None, model=None, parentID=None, path=None)
    edit(session_file(data, session), slug=None, version=None)
    histories, problems = read(data)
    assert problems == []
    answered = [message for message in wire(now[session]) if message["info"]["role"] == "assistant"]
    assert [message for message in wire(histories[session]) if message["info"]["role"] == "assistant"] == answered
    prompts = [message["info"] for message in wire(histories[session]) if message["info"]["role"] == "user"]
    assert all((prompt["agent"], prompt["model"]["modelID"]) == ("build", "main") for prompt in prompts)


def test_after_its_first_migration_the_oldest_layout_is_out_of_date(data: Path) -> None:
    by_project(data)
    (data / "storage" / "migration").write_text("2")
    with pytest.raises(NoOpenCodeData, match=r"neither opencode\.db"):
        read(data)


def test_beside_a_database_the_files_are_out_of_date(data: Path, tmp_path: Path) -> None:
    newer = unpack("1.18.33", tmp_path / "newer")
    (newer / "opencode.db").rename(data / "opencode.db")
    histories, _ = read(data)
    assert set(histories) == {each["id"] for each in answers(newer)["sessions"]}


def test_where_its_data_is() -> None:
    assert default_directory({"XDG_DATA_HOME": "/data"}) == Path("/data/opencode")
    assert default_directory({}) == Path.home() / ".local/share/opencode"


# Damage.


def message_file(data: Path, session: str, position: int) -> Path:
    return sorted((data / "storage" / "message" / session).glob("*.json"))[position]


def part_files(data: Path, message: Path) -> list[Path]:
    return sorted((data / "storage" / "part" / message.stem).glob("*.json"))


def test_a_truncated_message_is_reported_and_the_rest_is_read(data: Path, session: str) -> None:
    now, _ = read(data)
    damaged = message_file(data, session, 1)
    damaged.write_text(damaged.read_text()[:50])
    histories, problems = read(data)
    assert [problem.where for problem in problems] == [str(damaged)]
    assert wire(histories[session]) == [message for message in wire(now[session]) if message["info"]["id"] != damaged.stem]


def test_a_missing_messages_parts_are_reported(data: Path, session: str) -> None:
    lost = message_file(data, session, 1)
    lost.unlink()
    _, problems = read(data)
    assert problems == [Problem(str(data / "storage" / "part" / lost.stem), "parts without a message")]


def test_a_missing_sessions_messages_are_reported(data: Path, session: str) -> None:
    session_file(data, session).unlink()
    histories, problems = read(data)
    assert session not in histories
    assert problems == [Problem(str(data / "storage" / "message" / session), "messages without a session")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "hologram"}, "does not match any of the expected tags"),
        ({"type": None}, "Unable to extract tag"),
        ({"text": 5}, "text: Input should be a valid string"),
    ],
)
def test_an_unusable_part_is_left_out(data: Path, session: str, changes: dict[str, Any], reason: str) -> None:
    damaged = part_files(data, message_file(data, session, 0))[0]
    edit(damaged, **changes)
    histories, problems = read(data)
    assert histories[session].messages[0].parts == []
    assert len(histories[session].messages) > 5
    assert [problem.where for problem in problems] == [str(damaged)]
    assert reason in problems[0].reason


@pytest.mark.parametrize("time", [5, "now", {"start": "early"}])
def test_of_a_part_with_a_wrong_field_the_rest_is_kept(data: Path, session: str, time: Any) -> None:
    damaged = part_files(data, message_file(data, session, 0))[0]
    edit(damaged, time=time)
    histories, problems = read(data)
    assert [part.wire()["text"] for part in histories[session].messages[0].parts] == [
        "Bitte ändere die Datei – 日本語もどうぞ 🙂"
    ]
    assert problems
    assert {problem.where for problem in problems} == {str(damaged)}


def test_files_that_are_no_objects_are_reported(data: Path, session: str) -> None:
    message, parts = message_file(data, session, 0), part_files(data, message_file(data, session, 2))
    message.write_text("[1, 2]")
    parts[0].write_text("")
    (data / "storage" / "todo" / f"{session}.json").write_text('{"a": 1}')
    edit(message_file(data, session, 3), time=7)
    histories, problems = read(data)
    assert len(histories[session].messages) == len(answers(data)["messages"][session]) - 2
    wanted = [
        str(message),
        str(parts[0]),
        str(data / "storage" / "todo" / f"{session}.json"),
        str(message_file(data, session, 3)),
    ]
    assert sorted(problem.where for problem in problems) == sorted(wanted)


def test_a_session_without_a_time_cannot_be_read(data: Path, session: str) -> None:
    edit(session_file(data, session), time={})
    histories, problems = read(data)
    assert session not in histories
    assert {problem.where for problem in problems} == {str(session_file(data, session))}


def test_half_a_surrogate_pair_is_replaced(data: Path, session: str) -> None:
    path = part_files(data, message_file(data, session, 0))[0]
    path.write_text(path.read_text().replace("🙂", "\\ud83d"))
    histories, problems = read(data)
    assert problems == []
    assert "\ufffd" in histories[session].messages[0].parts[0].wire()["text"]


def test_a_revert_to_a_lost_message_is_dropped(data: Path) -> None:
    session = answers(data)["names"]["revert"]
    edit(session_file(data, session), revert={"messageID": "msg_gone"})
    histories, problems = read(data)
    assert histories[session].info.revert is None
    assert [problem.reason for problem in problems] == ["revert: there is no message msg_gone"]


def test_what_was_unfinished_is_interrupted(data: Path, session: str) -> None:
    answer = message_file(data, session, 1)
    info = json.loads(answer.read_text())
    edit(answer, time={"created": info["time"]["created"]}, finish=None)
    tool = next(path for path in part_files(data, answer) if json.loads(path.read_text())["type"] == "tool")
    started = {"status": "running", "input": {"filePath": "x"}, "time": {"start": info["time"]["created"] + 5}}
    edit(tool, state=started)
    histories, problems = read(data)
    message = next(each for each in wire(histories[session]) if each["info"]["id"] == answer.stem)
    assert problems == []
    assert message["info"]["error"]["name"] == "MessageAbortedError"
    assert message["info"]["time"]["completed"] >= info["time"]["created"] + 5
    call = next(part for part in message["parts"] if part["type"] == "tool")
    assert (call["state"]["status"], call["state"]["input"]) == ("error", {"filePath": "x"})
    assert read(data)[0][session] == histories[session]


# The database.


@contextmanager
def written_by_opencode(path: Path) -> Iterator[sqlite3.Connection]:
    """An open connection whose changes are in the WAL alone."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    yield connection
    connection.close()


def test_what_is_in_the_wal_alone_is_read_and_no_file_changes(tmp_path: Path) -> None:
    data = unpack("1.18.33", tmp_path / "opencode")
    session = answers(data)["names"]["tools"]
    with written_by_opencode(data / "opencode.db") as database:
        database.execute("UPDATE session SET title = 'In the WAL' WHERE id = ?", (session,))
        database.commit()
        database.execute("UPDATE session SET title = 'Not committed' WHERE id = ?", (session,))
        before = state_of(data)
        histories, problems = read(data)
        assert state_of(data) == before
    assert problems == []
    assert histories[session].info.title == "In the WAL"


def test_a_wal_that_a_killed_opencode_left_is_read_where_nothing_may_be_written(tmp_path: Path) -> None:
    data = unpack("1.18.33", tmp_path / "opencode")
    session = answers(data)["names"]["tools"]
    with written_by_opencode(data / "opencode.db") as database:
        database.execute("UPDATE session SET title = 'In the WAL' WHERE id = ?", (session,))
        database.commit()
        left = {name: (data / name).read_bytes() for name in ("opencode.db", "opencode.db-wal")}
    (data / "opencode.db").unlink()
    for name, content in left.items():
        (data / name).write_bytes(content)
    before = state_of(data)
    assert read(data)[0][session].info.title == "In the WAL"
    assert state_of(data) == before


def test_a_database_that_never_stands_still_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, scratch = tmp_path / "opencode.db", tmp_path / "scratch"
    scratch.mkdir()
    path.write_bytes(b"x")
    states = iter(range(1_000))
    monkeypatch.setattr("app.transfer.opencode.database._state", lambda _: (next(states), 0, b""))
    monkeypatch.setattr("app.transfer.opencode.database._PAUSE_SECONDS", 0)
    with pytest.raises(DatabaseInUse, match="stop OpenCode"):
        copy_database(path, scratch)


def test_damaged_rows_are_reported(tmp_path: Path) -> None:
    data = unpack("1.18.33", tmp_path / "opencode")
    session = answers(data)["names"]["tools"]
    first = answers(data)["messages"][session][0]
    with sqlite3.connect(data / "opencode.db") as database:
        database.execute("UPDATE part SET data = '{\"type' WHERE message_id = ?", (first["info"]["id"],))
        database.execute("PRAGMA foreign_keys=OFF")
        database.execute("DELETE FROM message WHERE id = ?", (answers(data)["messages"][session][1]["info"]["id"],))
    database.close()
    lost = [part["id"] for part in answers(data)["messages"][session][1]["parts"]]
    histories, problems = read(data)
    assert histories[session].messages[0].parts == []
    assert len(histories[session].messages) == len(answers(data)["messages"][session]) - 1
    wanted = [f"{data / 'opencode.db'}:part/{part}" for part in [first["parts"][0]["id"], *lost]]
    assert sorted(problem.where for problem in problems) == sorted(wanted)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    data = tmp_path / "opencode"
    data.mkdir()
    (data / "opencode.db").write_bytes(b"no database at all" * 100)
    histories, problems = read(data)
    assert histories == {}
    assert "not a database" in problems[0].reason
