"""`opensession run` and its neighbours in a pipe: with a server of their own, and attached to one that runs."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked import PROGRAM
from launcher import opensession
from postgres import PostgresServer, migrated
from running_server import clean_environment, new_workspace, serving_here, this_checkout
from shell_commands import SECONDS, Shell
from typer.testing import CliRunner

from app import __version__
from app.cli import app as program

AGENTS = ("build", "plan")
REFUSED = "Refused, as there is no terminal to ask on: external_directory /etc/*. --allow grants what is asked for."


class Records(Shell):
    """With what is stored, the newest session first: a command would take a second to tell."""

    def sessions(self) -> list[dict[str, Any]]:
        return self._bodies("SELECT body, id FROM session ORDER BY seq DESC")

    def of(self, kind: str, session_id: str) -> list[dict[str, Any]]:
        """Its messages or parts."""
        return self._bodies(f"SELECT body, id FROM {kind} WHERE session_id = ? ORDER BY seq", session_id)

    def texts(self, session_id: str) -> list[str]:
        return [part["text"] for part in self.of("part", session_id) if part["type"] == "text"]

    def _bodies(self, query: str, *values: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.data / "opensession.db")) as database:
            return [{**json.loads(body), "id": id_} for body, id_ in database.execute(query, values)]


@pytest.fixture
def shell(tmp_path: Path) -> Records:
    (tmp_path / "home").mkdir()
    return Records(new_workspace(tmp_path / "workspace"), tmp_path / "home", tmp_path / "data")


@contextmanager
def answering_for_ever(shell: Records, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command whose model has begun and does not end."""
    script = shell.home / "script.json"
    script.write_text(json.dumps({"turns": [[{"text": "Let me think."}, {"sleep": 3600}]]}))
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    slow = {"OPENSESSION_SCRIPT": str(script)}
    with shell.started(opensession(), "run", "--format", "json", *arguments, settings=slow, **streams) as process:
        assert process.stdout and json.loads(process.stdout.readline())["type"] == "step_start"
        yield process


def long(tokens: int) -> str:
    return "".join(f"tok{number} ".ljust(8) for number in range(tokens)).strip()


def test_the_answer_is_all_that_is_printed_and_its_session_is_listed_shown_and_deleted(shell: Records) -> None:
    done = shell.done("run", "write", "b.txt:", "one")
    assert done.stdout == "I will write b.txt.\nDone: `write` succeeded (1 line of output).\n"
    assert done.stderr == "✓ write b.txt\n  +one\n"
    assert (shell.directory / "b.txt").read_text() == "one"
    listed = shell.done("session", "list").stdout
    session_id = listed.split()[0]
    assert listed.rstrip().endswith("write b.txt: one")
    shown = shell.done("session", "show", session_id).stdout
    assert "> write b.txt: one\n" in shown and "✓ write b.txt\n  +one\n" in shown and "Done: `write`" in shown
    for other in ("../auth/anthropic", f"{session_id}/message/{shell.of('message', session_id)[0]['id']}"):
        shell.done("session", "delete", other, code=1)
    shell.done("session", "delete", session_id)
    assert shell.sessions() == []
    assert "not found" in shell.done("session", "show", session_id, code=1).stderr


def test_titles_and_names_of_files_steer_no_terminal(shell: Records) -> None:
    shell.run("help", "--title", "a\x1b]0;b\x07c")
    agents = shell.directory / ".opencode" / "agent"
    agents.mkdir(parents=True)
    (agents / "a\x1b]0;b\x07c.md").write_text("---\n[\n---\n")
    for command in (["session", "list"], ["doctor"]):
        terminal, program = os.openpty()
        with shell.started(opensession(), *command, stdin=subprocess.DEVNULL, stdout=program, stderr=program) as process:
            os.close(program)
            shown = b""
            with suppress(OSError):  # EIO: the program has ended
                while piece := os.read(terminal, 2**16):
                    shown += piece
            process.wait()
        os.close(terminal)
        assert b"a]0;bc" in shown and b"\x07" not in shown and b"\x1b]" not in shown, shown


def test_standard_input_joins_the_prompt_or_is_the_prompt(shell: Records) -> None:
    assert shell.run(piped="long 3").strip() == long(3)
    shell.run("what broke?", piped="it fails\n")
    assert "what broke?\nit fails\n" in shell.texts(shell.sessions()[0]["id"])


def test_what_is_no_utf8_is_replaced_and_no_directory_to_work_in(shell: Records, tmp_path: Path) -> None:
    """Such as a name of the time when file systems had other encodings."""
    file = shell.home / "caf\udce9.txt"
    file.write_text("hello")
    shell.run("caf\udce9", "-f", str(file), "--title", "caf\udce9")
    (session,) = shell.sessions()
    parts = shell.of("part", session["id"])
    assert session["title"] == "caf\ufffd" in shell.texts(session["id"])
    assert [part["filename"] for part in parts if part["type"] == "file"] == ["caf\ufffd.txt"]
    odd = Shell(tmp_path / "caf\udce9", shell.home, shell.data)
    odd.directory.mkdir()
    assert "not UTF-8" in odd.done("run", "x", code=2).stderr and "not UTF-8" in odd.done("serve", code=1).stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("command", ["run", "models"])
def test_an_output_that_is_full_is_an_error_in_a_sentence(shell: Records, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": full, "stderr": subprocess.PIPE}
        with shell.started(*PROGRAM, command, *(["long 2"] if command == "run" else []), **streams) as process:
            _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (1, "The output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", [0, 2])
def test_a_stream_may_be_closed(shell: Records, closed: int) -> None:
    """By a job's scheduler, or a service."""
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with shell.started(*PROGRAM, "run", "long 2", preexec_fn=partial(os.close, closed), **streams) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out.strip()) == (0, long(2)), err


def test_a_session_goes_on_and_is_forked(shell: Records) -> None:
    shell.run("long 1", "--title", "The first")
    (first,) = shell.sessions()
    assert first["title"] == "The first"
    shell.run("-c", "long 2")
    shell.run("-s", first["id"], "long 3")
    assert [each["id"] for each in shell.sessions()] == [first["id"]]
    shell.run("-c", "--fork", "long 4")
    fork = next(each for each in shell.sessions() if each["id"] != first["id"])
    assert {"long 1", "long 2", "long 3"} < set(shell.texts(first["id"])) and "long 4" not in shell.texts(first["id"])
    assert {"long 1", "long 4"} < set(shell.texts(fork["id"]))


def test_what_another_directory_has_is_neither_listed_nor_goes_on(shell: Records, tmp_path: Path) -> None:
    """Outside git all directories belong to one project."""
    there, here = (["--dir", str(tmp_path / name)] for name in ("there", "here"))
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    shell.run(*here, "long 1", "--title", "Mine")
    shell.run(*there, "long 1", "--title", "Another's")
    (listed,) = shell.done("session", "list", *here).stdout.splitlines()
    assert listed.endswith("  Mine")
    shell.run(*here, "-c", "long 2")
    assert [len(shell.of("message", each["id"])) for each in shell.sessions()] == [2, 4]


def test_files_go_along_texts_to_be_read_and_images_as_they_are(shell: Records) -> None:
    (shell.home / "log.md").write_text("everything broke")
    (shell.home / "dot.png").write_bytes(b"\x89PNG")
    shell.run("long 1", "-f", str(shell.home / "log.md"), "--file", str(shell.home / "dot.png"))
    (session,) = shell.sessions()
    parts = shell.of("part", session["id"])
    assert [part["mime"] for part in parts if part["type"] == "file"] == ["text/plain", "image/png"]
    assert "everything broke" in "".join(part.get("text", "") for part in parts)


def test_json_is_a_line_for_each_part(shell: Records) -> None:
    events = [json.loads(line) for line in shell.run("read a.txt", "--format", "json").splitlines()]
    step = ["step_start", "text", "tool_use", "step_finish"]
    assert [each["type"] for each in events] == [*step, "step_start", "text", "step_finish"]
    assert events[2]["part"]["state"]["status"] == "completed"
    assert {each["sessionID"] for each in events} == {shell.sessions()[0]["id"]}


def test_without_a_terminal_a_permission_is_refused_unless_it_is_allowed_and_no_question_answered(shell: Records) -> None:
    refused = shell.done("run", "read /etc/hosts", code=1)
    assert REFUSED in refused.stderr.splitlines()
    allowed = shell.done("run", "--allow", "read /etc/hosts")
    assert "Allowed: external_directory /etc/*" in allowed.stderr and "`read` succeeded" in allowed.stdout
    asked = shell.done("run", "--allow", "ask Which colour: red, blue", code=1)
    assert "Not answered, as there is no terminal to ask on: Which colour" in asked.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "PROMPT"),
        (["--fork", "x"], "--fork"),
        (["-s", "ses_1", "-c", "x"], "--session"),
        (["-c", "--title", "t", "x"], "--title"),
        (["-m", "gpt", "x"], "--model"),
        (["-f", "missing.txt", "x"], "--file"),
        (["--attach", "localhost:1", "x"], "--attach"),
        (["--attach", "http://127.0.0.1:99999", "x"], "--attach"),
        (["--attach", "http://[::1", "x"], "--attach"),
        (["--dir", "missing", "x"], "--dir"),
        (["--format", "xml", "x"], "--format"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    """Read in this process: nothing is started."""
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(program, ["run", *arguments], env={"TERM": "dumb"})
    assert done.exit_code == 2 and named in done.stderr and done.stdout == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fail 400"], "Error: You asked me to fail with 400."),
        (["-m", "no/model", "x"], "There is no model no/model"),
        (["--agent", "nobody", "x"], "nobody"),
        (["-s", "ses_none", "x"], "Session not found: ses_none"),
        (["-c", "x"], "There is no session here to continue: leave --continue out."),
        (["--attach", "http://127.0.0.1:9", "x"], "The server at http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_an_error_ends_with_1_and_a_sentence(shell: Records, arguments: list[str], said: str) -> None:
    done = shell.done("run", *arguments, code=1)
    assert said in done.stderr and "Traceback" not in done.stderr


def test_ctrl_c_stops_the_turn_and_its_record_is_finished(shell: Records) -> None:
    with answering_for_ever(shell, "long 3") as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and "Stopping the turn" in err
    (session,) = shell.sessions()
    assert shell.of("message", session["id"])[-1]["error"]["name"] == "MessageAbortedError"


def test_a_session_whose_command_was_killed_goes_on_with_the_next_prompt(shell: Records) -> None:
    with answering_for_ever(shell, "long 3") as process:
        process.kill()
    (killed,) = shell.sessions()
    assert shell.run("long 1", "--title", "Another").strip() == long(1)  # it does not go on with the killed one's turn
    other = next(each for each in shell.sessions() if each["id"] != killed["id"])
    assert other["title"] == "Another" and long(3) not in map(str.strip, shell.texts(killed["id"]))
    assert shell.run("-s", killed["id"], "long 2").strip().endswith(long(2))


def test_a_server_that_has_a_password_or_tokens_is_attached_to(shell: Records, tmp_path: Path) -> None:
    with serving_here(tmp_path / "far", OPENCODE_SERVER_PASSWORD="secret") as server:
        attach = ("--attach", server.base)
        assert "needs a login: set OPENSESSION_TOKEN, or" in shell.done("run", *attach, "x", code=1).stderr
        shell.environment["OPENCODE_SERVER_PASSWORD"] = "secret"
        assert shell.run(*attach, "write c.txt: far") == "I will write c.txt.\nDone: `write` succeeded (1 line of output).\n"
        assert (server.workspace / "c.txt").read_text() == "far"
        here = Shell(shell.directory, shell.home, server.data)
        del shell.environment["OPENCODE_SERVER_PASSWORD"]
        shell.environment["OPENSESSION_TOKEN"] = here.done("token", "create", "cli").stdout.strip()
        assert shell.run(*attach, "-c", "long 2").strip() == long(2)
        assert len(json.loads(shell.done("session", "list", "--format", "json", *attach).stdout)) == 1
        assert shell.done("stats", *attach).stdout.splitlines()[1].startswith("scripted/rules ")
        assert shell.done("prune", "--older-than", "0d", *attach).stdout == "1 sessions in 1 trees deleted.\n"


def test_beside_a_server_of_the_same_sessions_it_works_and_says_how_to_attach(shell: Records, tmp_path: Path) -> None:
    with serving_here(tmp_path / "near") as server:
        near = Shell(server.workspace, shell.home, server.data)
        done = near.done("run", "long 3")
        assert done.stdout.strip() == long(3)
        assert f"--attach {server.base}" in done.stderr
        assert len(near.done("session", "list", "--attach", server.base).stdout.splitlines()) == 1


def test_postgresql_keeps_sessions_too_and_a_directory_that_needs_a_login_is_the_callers_own(
    shell: Records, postgres: PostgresServer
) -> None:
    shell.environment["OPENSESSION_DATABASE_URL"] = migrated(postgres)
    shell.done("user", "add", "ann", "--role", "admin")
    shell.run("write b.txt: one")
    assert shell.run("-c", "long 2").strip() == long(2)
    assert [each["title"] for each in json.loads(shell.done("session", "list", "--format", "json").stdout)] == [
        "write b.txt: one"
    ]


def test_models_agents_and_mcp_servers_are_listed(shell: Records) -> None:
    config = {"mcp": {"notes": {"type": "local", "command": ["true"], "enabled": False}}}
    (shell.directory / "opencode.json").write_text(json.dumps(config))
    assert "scripted/rules" in shell.done("models").stdout.splitlines()
    assert shell.done("models", "scripted").stdout == shell.done("models").stdout
    assert "There is no provider none" in shell.done("models", "none", code=1).stderr
    assert [line.split()[:2] for line in shell.done("agents").stdout.splitlines()][:2] == [[name, "primary"] for name in AGENTS]
    assert shell.done("mcp", "list").stdout == "notes  disabled\n"


def test_the_version_is_printed(shell: Records) -> None:
    assert shell.done("--version").stdout == f"{__version__}\n"


def test_a_shell_completes_commands(shell: Records) -> None:
    asked: Mapping[str, str] = {"_OPENSESSION_COMPLETE": "complete_bash", "COMP_WORDS": "opensession ses", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'opensession'; from app.cli import main; main()"
    environment = clean_environment(shell.home, **this_checkout()[1], **asked)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout.split() == ["session"]


def test_the_program_starts_without_what_only_some_commands_need() -> None:
    heavy = ["fastapi", "httpx2", "rich", "sqlalchemy", "app.server"]
    code = f"import app.cli, sys; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, **this_checkout()[1]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout.strip() == "[]", done.stderr
