"""What is read of the older layouts that OpenCode has had, and of damaged data.

That what a real version stored is shown as it showed it, `tests/flows/test_import_opencode.py` has.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_source import RECORDED_DIRECTORY, answers, by_project, edit, session_file, state_of, unpack, with_inline_diffs

from app.transfer.document import SessionHistory
from app.transfer.opencode.database import DatabaseInUse, NoOpenCodeData, copy_database, readers_of
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


def places(problems: list[Problem]) -> set[str]:
    return {problem.where for problem in problems}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("recorded")
    return {version: unpack(version, directory / version) for version in ("1.1.34", "1.18.33")}


@pytest.fixture(scope="module")
def now(recorded: dict[str, Path]) -> Histories:
    """What is read of the files as they are."""
    return read(recorded["1.1.34"])[0]


@pytest.fixture
def data(recorded: dict[str, Path], tmp_path: Path) -> Path:
    """Files of 1.1."""
    return shutil.copytree(recorded["1.1.34"], tmp_path / "opencode")


@pytest.fixture
def newer(recorded: dict[str, Path], tmp_path: Path) -> Path:
    """The database of 1.18."""
    return shutil.copytree(recorded["1.18.33"], tmp_path / "newer")


@pytest.fixture
def session(data: Path) -> str:
    """The one with many tools."""
    return str(answers(data)["names"]["tools"])


def wire(history: SessionHistory) -> list[dict[str, Any]]:
    return [message.wire() for message in history.messages]


def test_a_diff_within_its_session_is_read(data: Path, now: Histories) -> None:
    with_inline_diffs(data)
    before, problems = read(data)
    assert problems == []
    assert {each: history.diff for each, history in before.items()} == {each: history.diff for each, history in now.items()}
    assert sum(len(history.diff) for history in before.values()) > 1
    reverted = before[answers(data)["names"]["revert"]].diff
    assert [(diff.file, diff.before, diff.after) for diff in reverted][:1] == [("rev.txt", "one\n", "uno\n")]


@pytest.mark.parametrize("inline_parts", [False, True])
def test_the_oldest_layouts_are_read_until_their_first_migration(data: Path, now: Histories, inline_parts: bool) -> None:
    by_project(data, inline_parts=inline_parts)
    before, problems = read(data)
    assert problems == [] and set(before) == set(now)
    for session_id, history in before.items():
        assert history.info.directory == RECORDED_DIRECTORY
        if not inline_parts:
            assert wire(history) == wire(now[session_id])
        else:
            assert [len(message.parts) for message in history.messages] == [len(each.parts) for each in now[session_id].messages]
    (data / "storage" / "migration").write_text("2")
    with pytest.raises(NoOpenCodeData, match=r"neither opencode\.db"):
        read(data)


def test_fields_of_later_versions_are_completed(data: Path, session: str, now: Histories) -> None:
    for path in (data / "storage" / "message" / session).glob("*.json"):
        edit(path, agent=None, model=None, parentID=None, path=None)
    edit(session_file(data, session), slug=None, version=None)
    histories, problems = read(data)
    assert problems == []
    of_now = [message for message in wire(now[session]) if message["info"]["role"] == "assistant"]
    assert [message for message in wire(histories[session]) if message["info"]["role"] == "assistant"] == of_now
    prompts = [message["info"] for message in wire(histories[session]) if message["info"]["role"] == "user"]
    assert {(prompt["agent"], prompt["model"]["modelID"]) for prompt in prompts} == {("build", "main")}


def test_beside_a_database_the_files_are_out_of_date(data: Path, newer: Path) -> None:
    (newer / "opencode.db").rename(data / "opencode.db")
    assert set(read(data)[0]) == {each["id"] for each in answers(newer)["sessions"]}


# Damage.


def message_file(data: Path, session: str, position: int) -> Path:
    return sorted((data / "storage" / "message" / session).glob("*.json"))[position]


def part_file(data: Path, message: Path) -> Path:
    """Its first."""
    return min((data / "storage" / "part" / message.stem).glob("*.json"))


def test_a_truncated_message_is_reported_and_the_rest_is_read(data: Path, session: str, now: Histories) -> None:
    damaged = message_file(data, session, 1)
    damaged.write_text(damaged.read_text()[:50])
    histories, problems = read(data)
    assert [problem.where for problem in problems] == [str(damaged)]
    assert wire(histories[session]) == [message for message in wire(now[session]) if message["info"]["id"] != damaged.stem]


def test_parts_without_their_message_and_messages_without_their_session_are_reported(data: Path, session: str) -> None:
    lost = message_file(data, session, 1)
    lost.unlink()
    assert read(data)[1] == [Problem(str(data / "storage" / "part" / lost.stem), "parts without a message")]
    session_file(data, session).unlink()
    histories, problems = read(data)
    assert session not in histories
    assert Problem(str(data / "storage" / "message" / session), "messages without a session") in problems


@pytest.mark.parametrize(
    ("changes", "kept", "reason"),
    [
        ({"type": "hologram"}, [], "does not match any of the expected tags"),
        ({"type": None}, [], "Unable to extract tag"),
        ({"text": 5}, [], "text: Input should be a valid string"),
        *(({"time": time}, ["Bitte ändere die Datei – 日本語もどうぞ 🙂"], "time") for time in (5, "now", {"start": "early"})),
    ],
)
def test_of_a_damaged_part_what_is_usable_is_kept(
    data: Path, session: str, changes: dict[str, Any], kept: list[str], reason: str
) -> None:
    damaged = part_file(data, message_file(data, session, 0))
    edit(damaged, **changes)
    histories, problems = read(data)
    assert [part.wire()["text"] for part in histories[session].messages[0].parts] == kept
    assert len(histories[session].messages) > 5
    assert places(problems) == {str(damaged)} and reason in problems[0].reason and (kept or len(problems) == 1)


def test_files_that_are_no_objects_are_reported(data: Path, session: str) -> None:
    message, part = message_file(data, session, 0), part_file(data, message_file(data, session, 2))
    todo, timeless = data / "storage" / "todo" / f"{session}.json", message_file(data, session, 3)
    message.write_text("[1, 2]")
    part.write_text("")
    todo.write_text('{"a": 1}')
    edit(timeless, time=7)
    histories, problems = read(data)
    assert len(histories[session].messages) == len(answers(data)["messages"][session]) - 2
    assert sorted(problem.where for problem in problems) == sorted(map(str, (message, part, todo, timeless)))


def test_a_session_without_a_time_cannot_be_read(data: Path, session: str) -> None:
    edit(session_file(data, session), time={})
    histories, problems = read(data)
    assert session not in histories and places(problems) == {str(session_file(data, session))}


def test_half_a_surrogate_pair_is_replaced(data: Path, session: str) -> None:
    path = part_file(data, message_file(data, session, 0))
    path.write_text(path.read_text().replace("🙂", "\\ud83d"))
    histories, problems = read(data)
    assert problems == [] and "\ufffd" in histories[session].messages[0].parts[0].wire()["text"]


def test_a_revert_to_a_lost_message_is_dropped(data: Path) -> None:
    session = answers(data)["names"]["revert"]
    edit(session_file(data, session), revert={"messageID": "msg_gone"})
    histories, problems = read(data)
    assert histories[session].info.revert is None
    assert [problem.reason for problem in problems] == ["revert: there is no message msg_gone"]


def test_what_was_unfinished_is_interrupted(data: Path, session: str) -> None:
    answer = message_file(data, session, 1)
    created = json.loads(answer.read_text())["time"]["created"]
    edit(answer, time={"created": created}, finish=None)
    parts = (data / "storage" / "part" / answer.stem).glob("*.json")
    tool = next(path for path in parts if json.loads(path.read_text())["type"] == "tool")
    edit(tool, state={"status": "running", "input": {"filePath": "x"}, "time": {"start": created + 5}})
    histories, problems = read(data)
    message = next(each for each in wire(histories[session]) if each["info"]["id"] == answer.stem)
    assert problems == [] and message["info"]["error"]["name"] == "MessageAbortedError"
    assert message["info"]["time"]["completed"] >= created + 5
    call = next(part for part in message["parts"] if part["type"] == "tool")
    assert (call["state"]["status"], call["state"]["input"]) == ("error", {"filePath": "x"})
    assert read(data)[0][session] == histories[session]


# The database.


@contextmanager
def with_a_change_in_the_wal(data: Path) -> Iterator[sqlite3.Connection]:
    """An open connection whose change is in the WAL alone."""
    with closing(sqlite3.connect(data / "opencode.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("UPDATE session SET title = 'In the WAL' WHERE id = ?", (answers(data)["names"]["tools"],))
        connection.commit()
        yield connection


def test_what_is_in_the_wal_alone_is_read_and_no_file_changes(newer: Path) -> None:
    session = answers(newer)["names"]["tools"]
    with with_a_change_in_the_wal(newer) as database:
        database.execute("UPDATE session SET title = 'Not committed' WHERE id = ?", (session,))
        before = state_of(newer)
        histories, problems = read(newer)
        assert state_of(newer) == before and problems == []
        assert histories[session].info.title == "In the WAL"


def test_a_wal_that_a_killed_opencode_left_is_read_where_nothing_may_be_written(newer: Path) -> None:
    with with_a_change_in_the_wal(newer):
        left = {name: (newer / name).read_bytes() for name in ("opencode.db", "opencode.db-wal")}
    (newer / "opencode.db").unlink()
    for name, content in left.items():
        (newer / name).write_bytes(content)
    before = state_of(newer)
    assert read(newer)[0][answers(newer)["names"]["tools"]].info.title == "In the WAL"
    assert state_of(newer) == before


def test_a_database_that_never_stands_still_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "opencode.db").write_bytes(b"x")
    (tmp_path / "scratch").mkdir()
    states = iter(range(1_000))
    monkeypatch.setattr("app.transfer.opencode.database._state", lambda _: (next(states), 0, b""))
    monkeypatch.setattr("app.transfer.opencode.database._PAUSE_SECONDS", 0)
    with pytest.raises(DatabaseInUse, match="stop OpenCode"):
        copy_database(tmp_path / "opencode.db", tmp_path / "scratch")


def test_damaged_rows_are_reported(newer: Path) -> None:
    session = answers(newer)["names"]["tools"]
    first, second, *rest = answers(newer)["messages"][session]
    with closing(sqlite3.connect(newer / "opencode.db")) as database, database:
        database.execute("UPDATE part SET data = '{\"type' WHERE message_id = ?", (first["info"]["id"],))
        database.execute("DELETE FROM message WHERE id = ?", (second["info"]["id"],))
    histories, problems = read(newer)
    assert histories[session].messages[0].parts == [] and len(histories[session].messages) == len(rest) + 1
    lost = [first["parts"][0]["id"], *(part["id"] for part in second["parts"])]
    assert sorted(problem.where for problem in problems) == sorted(f"{newer / 'opencode.db'}:part/{part}" for part in lost)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_bytes(b"no database at all" * 100)
    histories, problems = read(tmp_path)
    assert histories == {} and "not a database" in problems[0].reason
