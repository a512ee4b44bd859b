"""A headless Neovim with a plugin: Lua goes in, what it says comes out. What it would ask people is answered by the test."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS = 120
POLL_SECONDS = 0.1

TOLD = """
vim.o.swapfile = false
asked, notices, events = {}, {}, {}
vim.ui.select = function(items, options, choose)
  local shown = vim.tbl_map(options.format_item or tostring, items)
  table.insert(asked, { prompt = options.prompt, shown = shown, choose = function(n) choose(items[n], n) end })
end
vim.notify = function(text) table.insert(notices, text) end
vim.api.nvim_create_autocmd("User", {
  pattern = "OpencodeEvent:*",
  callback = function(args) table.insert(events, args.data.event.type) end,
})
"""
"""Menus and notices are Neovim's to replace; its own menu would wait for keys."""


def neovim_program(oldest: tuple[int, int]) -> str:
    """The one that OPENSESSION_TEST_NVIM names, or that of the PATH. Without it, or with an older one, the test is skipped."""
    found = os.environ.get("OPENSESSION_TEST_NVIM") or shutil.which("nvim")
    if found is None:
        pytest.skip("Neovim is not installed (OPENSESSION_TEST_NVIM)")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"NVIM v(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < oldest:
        wanted = ".".join(map(str, oldest))
        pytest.skip(f"Neovim {wanted} or newer is needed (OPENSESSION_TEST_NVIM), this is {said.splitlines()[0]}")
    return found


def checkout(variable: str, holds: str) -> str:
    """Of a plugin, by the variable that names it; without it the test is skipped. `holds`: a directory in it."""
    if not (path := os.environ.get(variable)) or not Path(path, holds).is_dir():
        pytest.skip(f"{variable} names no checkout of the plugin")
    return path


class Neovim:
    """`asked` are its menus, `notices` what it says, `events` what the plugin hears of the server."""

    def __init__(self, program: str, environment: Mapping[str, str], socket: str) -> None:
        self._asking = [program, "--server", socket, "--remote-expr"]
        self._environment = environment

    def lua(self, expression: str) -> Any:
        """Its value."""
        quoted = expression.replace("'", "''")
        asking = [*self._asking, f"json_encode(luaeval('{quoted}'))"]
        done = subprocess.run(asking, env=self._environment, capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, f"{expression}: {done.stderr}"
        return json.loads(done.stdout)

    def do(self, *statements: str) -> None:
        for statement in statements:
            self.lua(f"(function() {statement} end)()")

    def wait_for(self, condition: str) -> Any:
        """The first value of a Lua expression that is neither false nor nil."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (value := self.lua(condition)):
            if time.monotonic() > deadline:
                pytest.fail(f"Neovim did not come to {condition}:\n{json.dumps(self._state(), indent=1)}")
            time.sleep(POLL_SECONDS)
        return value

    @contextmanager
    def until(self, event: str, times: int = 1) -> Iterator[None]:
        """After the block it is waited for so many more of an event than before."""
        count = f"#vim.tbl_filter(function(type) return type == '{event}' end, events)"
        before = self.lua(count)
        yield
        self.wait_for(f"{count} >= {before + times}")

    def asked_by(self, statement: str) -> list[str]:
        """The items of the menu that a statement opens."""
        before = self.lua("#asked")
        self.do(statement)
        return list(self.wait_for(f"#asked > {before} and asked[#asked].shown"))

    def choose(self, items: list[str], text: str) -> None:
        """The item of the last menu that shows this."""
        self.do(f"asked[#asked].choose({1 + next(n for n, item in enumerate(items) if text in item)})")

    def _state(self) -> Any:
        shown = "vim.tbl_map(function(each) return { each.prompt, each.shown } end, asked)"
        return self.lua(f"{{ notices = notices, asked = {shown}, events = events, messages = vim.fn.execute('messages') }}")


@contextmanager
def neovim(program: str, setup: str, directory: Path, environment: Mapping[str, str]) -> Iterator[Neovim]:
    """It runs in `directory` with `setup`, in Lua, as its configuration until the block ends."""
    # A socket's path may have about a hundred characters: too few for pytest's directories.
    with tempfile.TemporaryDirectory(prefix="nvim") as own:
        Path(own, "init.lua").write_text(TOLD + setup)
        socket = Path(own, "socket")
        command = [program, "--headless", "-i", "NONE", "-u", f"{own}/init.lua", "--listen", str(socket)]
        with subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL) as process:
            try:
                _wait_until_it_listens(process, socket)
                yield Neovim(program, environment, str(socket))
            finally:
                process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], socket: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not socket.exists():
        assert process.poll() is None and time.monotonic() < deadline, "Neovim did not start"
        time.sleep(POLL_SECONDS)
