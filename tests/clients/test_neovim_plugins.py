"""Two plugins for Neovim, in a headless one, against this server and against OpenCode 1.18.33: what they do works, and no request
is refused.

For the long form. It needs Neovim 0.10 or newer, on the PATH or named by OPENSESSION_TEST_NVIM, and checkouts of the plugins:

- OPENSESSION_TEST_NICKJVANDYKE: nickjvandyke/opencode.nvim at 2ddeebd
- OPENSESSION_TEST_SUDO_TEE: sudo-tee/opencode.nvim at e510d32
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from long_form import LONG
from model_server import ModelServer, Step, model_server
from neovim import POLL_SECONDS, WAIT_SECONDS, Neovim, checkout, neovim, neovim_program
from opencode_program import OFFLINE, asking, attached, installed, offline_home
from recording_proxy import RecordingProxy, recording_proxy
from running_server import RunningServer, clean_environment, serving, this_checkout
from terminal import Terminal

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

HERE, OPENCODE = "here", "OpenCode 1.18.33"
OLDEST = (0, 10)
ASKS = {"permission": {"bash": "ask", "edit": "ask"}, "command": {"greet": {"template": "Say hello to $ARGUMENTS"}}}


@dataclass(frozen=True)
class Desk:
    """A server, the model that it asks, the proxy that the plugin asks it through, and an editor with the plugin."""

    model: ModelServer
    server: RunningServer
    proxy: RecordingProxy
    editor: Neovim

    def edits(self, old: str, new: str) -> list[list[Step]]:
        """What the model does to a.txt."""
        path = str(self.server.workspace / "a.txt")
        return [[("read", {"filePath": path})], [("edit", {"filePath": path, "oldString": old, "newString": new})], ["Edited."]]


@pytest.fixture(scope="module")
def nvim() -> str:
    return neovim_program(OLDEST)


@pytest.fixture(scope="module")
def program(node_modules: Path) -> str:
    """The program, which is a server and a terminal client."""
    return str(installed(node_modules))


@contextmanager
def served(where: str, opencode: str, directory: Path) -> Iterator[tuple[ModelServer, RunningServer, RecordingProxy]]:
    """In the end no request was refused."""
    with model_server() as model, ExitStack() as stack:
        model.think_seconds, own = 0.3, asking(model, **ASKS)
        command = [opencode, "serve", "--port", "PORT"] if where == OPENCODE else this_checkout()[0]
        server = stack.enter_context(serving(command, directory, {**own, **(OFFLINE if where == OPENCODE else {})}))
        offline_home(directory / "home")
        proxy = stack.enter_context(recording_proxy(server.port))
        yield model, server, proxy
        assert proxy.refused() == []


def wait_until_file(path: Path, *, exists: bool) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while path.exists() != exists:
        assert time.monotonic() < deadline, f"{path} {'does not exist' if exists else 'still exists'}"
        time.sleep(POLL_SECONDS)


# nickjvandyke/opencode.nvim: it drives a terminal client, and answers permission requests.


@dataclass(frozen=True)
class Driven(Desk):
    shown: Terminal

    def prompt(self, text: str, *turns: list[Step]) -> None:
        self.model.play(*turns)
        self.editor.do(f"require('opencode').prompt('{text}')")

    def select(self, name: str) -> None:
        """In the plugin's menu."""
        self.editor.choose(self.editor.asked_by("require('opencode').select()"), f"[{name}]")


@pytest.fixture(scope="module", params=[HERE, OPENCODE])
def driven(request: pytest.FixtureRequest, nvim: str, program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    plugin, directory = checkout("OPENSESSION_TEST_NICKJVANDYKE", "lua/opencode"), tmp_path_factory.mktemp("driven")
    with ExitStack() as stack:
        model, server, proxy = stack.enter_context(served(request.param, program, directory))
        shown = stack.enter_context(attached(Path(program), server, directory / "terminal"))
        setup = f"""
            vim.opt.runtimepath:prepend("{plugin}")
            vim.g.opencode_opts = {{ server = {{ url = "{proxy.base}", start = false }} }}
        """
        with neovim(nvim, setup, server.workspace, clean_environment(directory / "home")) as editor:
            editor.do("vim.cmd('edit a.txt')")
            yield Driven(model, server, proxy, editor, shown)


def test_a_prompt_is_sent_by_the_terminal_client(driven: Driven) -> None:
    driven.prompt("Explain @this ", ["It holds two words."])
    driven.shown.wait_for("┃  Explain a.txt:L1", without="It holds two words.")
    with driven.editor.until("session.idle"):
        driven.editor.do("require('opencode').command('prompt.submit')")
        driven.shown.wait_for("It holds two words.")


def test_a_request_for_permission_is_answered_in_the_editor(driven: Driven) -> None:
    before = driven.editor.lua("#asked")
    with driven.editor.until("session.idle"):
        driven.prompt("Run it", [("bash", {"command": "echo allowed", "description": "Says so"})], ["It ran."])
        driven.editor.wait_for(f"#asked > {before}")
        assert driven.editor.lua("asked[#asked].prompt") == "Permit opencode to: bash echo allowed?: "
        driven.editor.choose(driven.editor.lua("asked[#asked].shown"), "Once")
        driven.shown.wait_for("It ran.")


@pytest.mark.parametrize(("key", "becomes"), [("dr", "hello"), ("da", "goodbye")])
def test_an_edit_is_shown_as_a_diff_and_refused_or_accepted(driven: Driven, key: str, becomes: str) -> None:
    with driven.editor.until("session.idle"):
        driven.prompt("Edit it", *driven.edits("hello", "goodbye"))
        driven.editor.wait_for("#vim.api.nvim_list_tabpages() > 1 and vim.wo.diff")
        assert driven.editor.lua("vim.api.nvim_buf_get_lines(0, 0, -1, false)") == ["goodbye", "world"]
        driven.editor.do(f"vim.api.nvim_feedkeys('{key}', 'xt', false)")
        driven.editor.wait_for("#vim.api.nvim_list_tabpages() == 1")
        driven.editor.wait_for(f"vim.fn.getbufline('a.txt', 1)[1] == '{becomes}'")


def test_the_terminal_client_obeys_the_menu(driven: Driven) -> None:
    httpx2.post(f"{driven.server.base}/session", json={"title": "Chosen"}).raise_for_status()
    items = driven.editor.asked_by("require('opencode').select()")
    before = driven.editor.lua("#asked")
    driven.editor.choose(items, "[session.select]")
    driven.editor.choose(driven.editor.wait_for(f"#asked > {before} and asked[#asked].shown"), "Chosen")
    driven.shown.wait_for("Chosen", without="Ask anything")
    driven.select("session.new")
    driven.shown.wait_for("Ask anything", without="Chosen")
    driven.select("agent.cycle")
    driven.shown.wait_for("┃  Plan")
    driven.prompt("to be cleared ")
    driven.shown.wait_for("┃  to be cleared")
    driven.select("prompt.clear")
    driven.shown.wait_for("Ask anything", without="to be cleared")


def test_the_plugin_stays_connected_while_nothing_happens(driven: Driven) -> None:
    """It hangs up when no heartbeat comes for 11 seconds."""
    driven.editor.do("require('opencode').command('session.new')")
    with driven.editor.until("server.heartbeat", times=2):
        pass
    assert driven.editor.lua("require('opencode.server').connected ~= nil")
    driven.select("server.disconnect")
    assert driven.editor.lua("require('opencode.server').connected == nil")


# sudo-tee/opencode.nvim: a conversation in the editor's own windows.


PENDING = "require('opencode.ui.permission_window').get_current_permission()"
FIRST_SNAPSHOT = """(function()
    for _, message in ipairs(require('opencode.state').messages) do
        local found = require('opencode.session').get_message_snapshot_ids(message)
        if found then return found[1] end
    end
end)()"""


class Chat(Desk):
    def call(self, action: str) -> None:
        self.editor.do(f"require('opencode.api').{action}")

    def wait_for_text(self, text: str) -> None:
        buffer = "(require('opencode.state').windows or {}).output_buf or 0"
        self.editor.wait_for(
            f"table.concat(vim.api.nvim_buf_get_lines({buffer}, 0, -1, false), '\\n'):find({json.dumps(text)}, 1, true)"
        )

    def wait_for_notice(self, text: str) -> None:
        self.editor.wait_for(f"table.concat(notices, '\\n'):find('{text}', 1, true)")

    def wait_until_idle(self) -> None:
        self.editor.wait_for("vim.iter(require('opencode.state').user_message_count):all(function(_, n) return n == 0 end)")

    def say(self, text: str, *turns: list[Step], answer: str, new_session: bool = False, permits: int = 0) -> None:
        """`permits`: requests for permission that are allowed before the answer."""
        self.model.play(*turns)
        self.call(f"{'run_new_session' if new_session else 'run'}('{text}')")
        for _ in range(permits):
            self.wait_for_permission()
            answered = self.editor.lua(f"{PENDING}.id")
            self.call("permission_accept()")
            self.editor.wait_for(f"({PENDING} or {{}}).id ~= '{answered}'")
        self.wait_for_text(answer)
        self.wait_until_idle()

    def wait_for_permission(self) -> None:
        self.editor.wait_for(f"{PENDING} ~= nil")

    def writes(self, path: Path) -> None:
        """In a session of its own."""
        write, answer = ("write", {"filePath": str(path), "content": "one\n"}), f"Here is {path.stem}."
        self.say("Write it", [write], [answer], answer=answer, new_session=True, permits=1)

    def title(self, text: str) -> None:
        """Waits until the session that is shown has it."""
        self.editor.wait_for(f"((require('opencode.state').active_session or {{}}).title or ''):find('{text}', 1, true)")


@pytest.fixture(scope="module", params=[(HERE, "1.18.33"), (HERE, "1.1.34"), (OPENCODE, "1.18.33")], ids=" ".join)
def chat(request: pytest.FixtureRequest, nvim: str, program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    """The plugin asks the program `opencode` for its version alone, and gives it 5 s; by that it chooses the stream to follow."""
    plugin, directory = checkout("OPENSESSION_TEST_SUDO_TEE", "lua/opencode"), tmp_path_factory.mktemp("chat")
    where, version = request.param
    (program := directory / "opencode").write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    with served(where, program, directory) as (model, server, proxy):
        setup = f"""
            vim.opt.runtimepath:prepend("{plugin}")
            require("opencode").setup({{
              preferred_picker = "select",
              opencode_executable = "{program}",
              snapshot_path = "{server.data if where == HERE else directory / "home" / ".local" / "share" / "opencode"}",
              server = {{ url = "127.0.0.1", port = {proxy.port}, auto_kill = false }},
            }})
        """
        with neovim(nvim, setup, server.workspace, clean_environment(directory / "home")) as editor:
            editor.do("vim.cmd('edit a.txt')")
            talk = Chat(model, server, proxy, editor)
            talk.say("What is in it?", ["It holds two words."], answer="It holds two words.", new_session=True)
            yield talk


def test_a_permission_is_given_and_refused(chat: Chat) -> None:
    def runs(command: str) -> list[Step]:
        return [("bash", {"command": command, "description": "Says so"})]

    chat.say("Run it", runs("echo allowed"), ["It ran."], answer="It ran.", permits=1)
    chat.model.play(runs("echo refused"))
    chat.call("run('Run it again')")
    chat.wait_for_permission()
    chat.call("permission_deny()")
    chat.wait_for_text("rejected permission")
    chat.wait_until_idle()


def test_edits_are_shown_undone_and_redone(chat: Chat) -> None:
    made, line = chat.server.workspace / "made.txt", "vim.fn.getbufline('a.txt', 1)[1]"
    write = ("write", {"filePath": str(made), "content": "one\n"})
    chat.say("Edit it", [write], *chat.edits("hello", "goodbye"), answer="Edited.", new_session=True, permits=2)
    chat.editor.wait_for(f"{line} == 'goodbye'")
    chat.call("undo()")
    wait_until_file(made, exists=False)
    chat.editor.wait_for(f"{line} == 'hello' and require('opencode.state').active_session.revert ~= nil")
    chat.call("redo()")
    wait_until_file(made, exists=True)
    chat.editor.wait_for(f"{line} == 'goodbye'")


def test_what_changed_is_shown_and_reverted_by_the_snapshots_on_the_disk(chat: Chat) -> None:
    """The plugin reads them where OpenCode would have them, and writes their index. Later snapshots are right all the same."""
    shown, later = (chat.server.workspace / name for name in ("shown.txt", "later.txt"))
    chat.writes(shown)
    chat.call("diff_open()")
    chat.editor.wait_for("#vim.api.nvim_list_tabpages() > 1 and vim.wo.diff")
    windows = "vim.tbl_map(vim.api.nvim_win_get_buf, vim.api.nvim_tabpage_list_wins(0))"
    texts = chat.editor.lua(
        f"vim.tbl_map(function(buffer) return vim.api.nvim_buf_get_lines(buffer, 0, -1, false) end, {windows})"
    )
    assert texts == [["one"], [""]]
    chat.call("diff_close()")
    snapshot = chat.editor.wait_for(FIRST_SNAPSHOT)
    chat.editor.do("vim.fn.input = function() return 'y' end")
    chat.call(f"diff_revert_all('{snapshot}')")
    wait_until_file(shown, exists=False)
    chat.writes(later)
    chat.call("undo()")
    wait_until_file(later, exists=False)


def test_a_question_is_answered(chat: Chat) -> None:
    options = [{"label": "Red", "description": "As blood"}, {"label": "Blue", "description": "As the sky"}]
    asks = ("question", {"questions": [{"question": "Which colour?", "header": "Colour", "options": options}]})
    chat.model.play([asks], ["So it is red."])
    chat.call("run_new_session('Ask me')")
    chat.editor.wait_for("require('opencode.ui.question_window').has_question()")
    chat.call("question_answer()")
    chat.wait_for_text("So it is red.")
    chat.wait_until_idle()


def test_sessions_are_renamed_forked_and_chosen(chat: Chat) -> None:
    chat.say("Begin", ["Begun."], answer="Begun.", new_session=True)
    chat.call("rename_session(nil, 'Renamed')")
    chat.title("Renamed")
    chat.call("fork_session()")
    chat.title("Renamed (fork #1)")
    items = chat.editor.asked_by("require('opencode.api').select_session()")
    chat.editor.choose(items, "Renamed  ")
    chat.editor.wait_for("require('opencode.state').active_session.title == 'Renamed'")
    chat.wait_for_text("Begun.")
    chat.call("toggle_session_lock(true)")
    everywhere = chat.editor.asked_by("require('opencode.api').select_session()")
    assert any("Renamed (fork #1)" in item for item in everywhere)
    chat.call("toggle_session_lock(false)")


def test_a_command_runs_a_session_is_compacted_and_an_answer_stopped(chat: Chat) -> None:
    chat.say("Begin", ["Begun again."], answer="Begun again.", new_session=True)
    chat.model.play(["Hello World!"])
    chat.call("run_user_command('greet', { 'World' })")
    chat.wait_for_text("Hello World!")
    chat.model.play(["In short: hello."])
    chat.call("compact_session()")
    chat.wait_for_notice("Session compacted successfully")
    held = threading.Event()
    chat.model.play(["Once upon ", held])
    chat.call("run('Tell me a story')")
    chat.wait_for_text("Once upon")
    chat.call("cancel()")
    chat.wait_until_idle()
    held.set()


def test_models_agents_mcp_servers_and_skills_are_listed(chat: Chat) -> None:
    assert any("Main" in item for item in chat.editor.asked_by("require('opencode.api').configure_provider()"))
    assert chat.editor.asked_by("require('opencode.api').select_agent()") == ["build", "plan"]
    chat.call("mcp()")
    chat.wait_for_notice("No MCP servers configured")
    chat.editor.do("require('opencode.commands.handlers.surface').actions.skills()")
    chat.editor.wait_for("#vim.tbl_filter(function(text) return text == 'No skills available' end, notices) > 0 or #asked > 0")
