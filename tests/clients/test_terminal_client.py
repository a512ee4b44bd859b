"""OpenCode's own terminal client, unchanged, against a real server. What its screen shows is read, not what the server logs."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from model_server import ModelServer
from opencode_program import OLDER, asking, attached, installed
from running_server import RunningServer, serving, serving_again, this_checkout
from terminal import Terminal

WRITE = ("write", {"filePath": "made.txt", "content": "one\ntwo\n"})
LIST = ("bash", {"command": "ls -a > listed.txt; echo was-run", "description": "Lists what is there"})
BUSY = "esc interrupt"
TITLE = f"# {ModelServer.TITLE}"


@dataclass(frozen=True)
class Client:
    terminal: Terminal
    model: ModelServer
    workspace: Path

    def say(self, text: str) -> None:
        self.terminal.type(text)
        self.terminal.wait_for(f"┃  {text}")
        self.terminal.press("Enter")

    def command(self, name: str) -> None:
        """A slash command, entered when it is the first of those that are offered."""
        self.terminal.type(f"/{name}")
        self.terminal.wait_until(lambda screen: re.findall(r"┃ /([\w-]+)", screen)[:1] == [name], f"/{name} offered first")
        self.terminal.press("Enter")


@pytest.fixture(scope="module")
def program(node_modules: Path) -> Path:
    return installed(node_modules, OLDER)


@pytest.fixture(scope="module")
def environment(model: ModelServer) -> dict[str, str]:
    """The server's."""
    model.think_seconds = 1  # the client loads a new session beside its first events, and forgets what it heard meanwhile
    return asking(model, permission={"bash": "ask"})


@pytest.fixture(scope="module")
def server(program: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(this_checkout()[0], tmp_path_factory.mktemp("ui"), environment) as running:
        yield running


@pytest.fixture
def client(program: Path, server: RunningServer, model: ModelServer, tmp_path: Path) -> Iterator[Client]:
    """A client that was just started, in a workspace as it was committed."""
    for command in (["reset", "-q", "--hard"], ["clean", "-qfdx"]):
        subprocess.run(["git", *command], cwd=server.workspace, check=True)
    with attached(program, server, tmp_path) as opened:
        yield Client(opened, model, server.workspace)


def test_it_starts_where_the_server_works_and_an_answer_streams_onto_the_screen(client: Client, gate: threading.Event) -> None:
    branch = (client.workspace / ".git" / "HEAD").read_text().strip().rpartition("/")[2]
    client.terminal.wait_for(f"workspace:{branch}", "┃  Build  Main Fake")
    client.model.play(["The first half ", gate, "and the second."])
    client.say("hello there")
    client.terminal.wait_for("┃  hello there", "The first half", BUSY)
    gate.set()
    client.terminal.wait_for("The first half and the second.", TITLE, without=BUSY)


def test_a_tool_call_is_shown_with_what_it_did(client: Client) -> None:
    client.model.play(["I write a file.", WRITE], ["It is written."])
    client.say("make a file")
    client.terminal.wait_for("I write a file.", "# Wrote made.txt", "1 one", "2 two", "It is written.", without=BUSY)
    assert (client.workspace / "made.txt").read_text() == "one\ntwo\n"


def test_a_permission_is_asked_for_in_a_dialog_and_granted_or_refused_which_stops_the_turn(client: Client) -> None:
    listed = client.workspace / "listed.txt"
    client.model.play([LIST], ["Listed."])
    client.say("list the files")
    client.terminal.wait_for("Permission required", "# Lists what is there", "$ ls -a > listed.txt", "Allow once")
    assert not listed.exists()
    client.terminal.press("Enter")
    client.terminal.wait_for("was-run", "Listed.", TITLE, without=BUSY)
    assert "a.txt" in listed.read_text()
    listed.unlink()
    client.model.play([LIST], ["It goes on."])
    client.say("list them again")
    client.terminal.wait_for("Permission required", "Reject")
    client.terminal.press("Right", "Right", "Enter")
    client.terminal.wait_for("┃  list them again", "tab agents", without="interrupt")
    assert not listed.exists()


def test_undo_takes_a_turn_and_its_files_back_and_redo_restores_them(client: Client) -> None:
    edit = ("edit", {"filePath": "a.txt", "oldString": "hello", "newString": "goodbye"})
    client.model.play([("read", {"filePath": "a.txt"})], [edit, WRITE], ["Both are done."])
    client.say("change two files")
    client.terminal.wait_for("Both are done.", TITLE, without=BUSY)
    changed, made = client.workspace / "a.txt", client.workspace / "made.txt"
    assert (changed.read_text(), made.exists()) == ("goodbye\nworld\n", True)

    client.command("undo")
    client.terminal.wait_for("1 message reverted", "a.txt +1 -1", "┃  change two files", without="Both are done.")
    assert (changed.read_text(), made.exists()) == ("hello\nworld\n", False)

    client.terminal.press("C-u")  # the prompt holds the message that was taken back
    client.terminal.wait_for("1 message reverted", without="change two files")
    client.command("redo")
    client.terminal.wait_for("┃  change two files", "Both are done.", without="1 message reverted")
    assert (changed.read_text(), made.read_text()) == ("goodbye\nworld\n", "one\ntwo\n")


def test_escape_twice_stops_a_turn(client: Client, gate: threading.Event) -> None:
    client.model.play(["It will never end, ", gate])
    client.say("never stop")
    client.terminal.wait_for("It will never end,", BUSY)
    client.terminal.press("Escape")
    client.terminal.wait_for("esc again to interrupt")
    client.terminal.press("Escape")
    client.terminal.wait_for("It will never end,", "· interrupted", "tab agents", without="to interrupt")


def test_a_question_is_answered_in_a_dialog(client: Client) -> None:
    options = [{"label": "Red", "description": "a warm one"}, {"label": "Blue", "description": "a cold one"}]
    question = {"question": "Which colour do you want?", "header": "Colour", "options": options}
    client.model.play([("question", {"questions": [question]})], ["A fine choice."])
    client.say("ask me")
    client.terminal.wait_for("Which colour do you want?", "1. Red", "2. Blue")
    client.terminal.press("Down", "Enter")
    client.terminal.wait_for("# Questions", "┃  Blue", "A fine choice.", without="1. Red")


def test_a_session_is_shared_renamed_compacted_and_listed(client: Client) -> None:
    client.model.play(["An answer."], ["What was done so far."])
    client.say("hello there")
    client.terminal.wait_for("An answer.", TITLE, without=BUSY)

    client.command("share")
    client.terminal.wait_for("Share URL copied to clipboard!")
    client.command("unshare")
    client.terminal.wait_for("Session unshared successfully")

    client.command("rename")
    client.terminal.wait_for("Rename Session")
    client.terminal.press("C-u")
    client.terminal.type("Named by hand")
    client.terminal.press("Enter")
    client.terminal.wait_for("# Named by hand", without="Rename Session")

    client.command("compact")
    client.terminal.wait_for("Compaction ─", "What was done so far.", "▣  Compaction · main", without=BUSY)

    client.command("sessions")
    client.terminal.wait_for("Search", "● Named by hand")


def test_a_session_is_forked_from_one_of_its_messages_by_a_command_or_from_the_timeline(client: Client) -> None:
    for answer in ("The first answer.", "The second answer."):
        client.model.play([answer])
        client.say(f"{answer.split()[1]} question")
        client.terminal.wait_for(answer, TITLE, without=BUSY)
    client.command("fork")
    client.terminal.wait_for("Fork from message", "Search", "first question")
    client.terminal.press("Enter")  # the newest message stands first: the fork ends before it
    client.terminal.wait_for(f"{TITLE} (fork #1)", "The first answer.", "┃  second question", without="The second answer.")
    client.model.play(["An answer in the fork."])
    client.terminal.press("Enter")
    client.terminal.wait_for("The first answer.", "An answer in the fork.", without=BUSY)

    client.command("timeline")
    client.terminal.wait_for("Timeline", "Search", "first question")
    client.terminal.press("Enter")
    client.terminal.wait_for("Message Actions", "Revert undo", "Fork create")
    client.terminal.type("fork")
    client.terminal.wait_for("Message Actions", "Fork create", without="Revert undo")
    client.terminal.press("Enter")
    client.terminal.wait_for("(fork #2)", "The first answer.", "┃  second question", without="An answer in the fork.")


def test_a_subagents_session_is_shown(client: Client) -> None:
    task = ("task", {"description": "look around", "prompt": "look around well", "subagent_type": "general"})
    client.model.play([task], [("glob", {"pattern": "*.txt"})], ["The child has looked."], ["All is fine."])
    client.say("send someone")
    client.terminal.wait_for("# General Task", "look around", "All is fine.", without=BUSY)
    client.terminal.press("C-x", "Right")
    client.terminal.wait_for("Subagent session", "┃  look around well", "The child has looked.")


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_client_has_missed_nothing_when_its_server_comes_back(
    program: Path, environment: dict[str, str], model: ModelServer, tmp_path: Path, gate: threading.Event, end: str
) -> None:
    command = this_checkout()[0]
    with ExitStack() as stack:
        with serving(command, tmp_path, environment) as server:
            client = Client(stack.enter_context(attached(program, server, tmp_path / "home")), model, server.workspace)
            model.play(["Said before."])
            client.say("hello there")
            client.terminal.wait_for("Said before.", TITLE, without=BUSY)
            if end == "killed":
                server.process.kill()
        stack.enter_context(serving_again(command, tmp_path, server.port, environment))
        if end == "stopped":  # it listens again after a while, and not from where it stopped: until then it is told in vain
            client.terminal.wait_until(lambda screen: "# Renamed" in screen or rename(server, "Renamed"), "the title of now")
        model.play(["Said after ", gate, "the restart."])
        client.say("are you there")
        client.terminal.wait_for("Said before.", "┃  are you there", "Said after", BUSY)
        gate.set()
        client.terminal.wait_for("Said after the restart.", without=BUSY)


def rename(server: RunningServer, title: str) -> bool:
    """The only session. False: whether the terminal shows it is to be seen."""
    with httpx2.Client(base_url=server.base, timeout=180) as http:
        [session] = http.get("/session").json()
        http.patch(f"/session/{session['id']}", json={"title": title}).raise_for_status()
    return False
