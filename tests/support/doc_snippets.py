"""The code blocks of a documentation page: found, run as one program, and compared with what the page says they print.

    ```sh run        runs, as do `js run` (node), `js browser` (Chromium) and `python run`; the blocks of one kind on a page are
                     one program, in their order, so that a later one may use what an earlier one has set
    ```text          directly below: what that block prints. Ids and times may differ; `…` stands for anything within a line
    ```json config   must be a valid opencode.json; `json event` an event as the server sends it
    others           are run by a test of their own: see CHECKED_ELSEWHERE in test_docs_pages.py

The pages speak of http://127.0.0.1:4096, and of 4097 for a second server; the address of the test's server and a free port are
put in their places.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from chromium import chromium
from launcher import opensession
from running_server import ROOT, RunningServer, clean_environment, free_port, needed

SHOWN_BASE = "http://127.0.0.1:4096"
SECOND_PORT = "4097"
SECONDS = 180
_MARK = "\x1e"
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"(ses|msg|prt|per|que)_[0-9A-Za-z]+|\b\d{13}\b|\b[0-9a-f]{40}\b|…")


@dataclass(frozen=True)
class Block:
    """`shown` is the text block directly below, None without one."""

    language: str
    mode: str
    code: str
    line: int
    shown: str | None

    @property
    def kind(self) -> str:
        return f"{self.language} {self.mode}".strip()


def blocks(page: str) -> list[Block]:
    found = list(_FENCE.finditer(page))
    below = [*found, None][1:]
    return [
        Block(
            language=fence[1],
            mode=fence[2].strip(),
            code=fence[3],
            line=page.count("\n", 0, fence.start()) + 1,
            shown=after[3] if after and after[1] == "text" and not page[fence.end() : after.start()].strip() else None,
        )
        for fence, after in zip(found, below, strict=True)
    ]


def prose(page: str) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page)


def run_page(page: Path, kind: str, server: RunningServer, directory: Path) -> list[tuple[Block, str]]:
    """Each block of a kind, and what it printed."""
    chosen = [block for block in blocks(page.read_text()) if block.kind == kind]
    program = "\n".join(f"{_MARKS[kind]}\n{block.code}" for block in chosen).replace(SHOWN_BASE, server.base)
    program = program.replace(SECOND_PORT, str(free_port()))
    printed = _RUN[kind](program, server, directory).replace(server.base, SHOWN_BASE)
    outputs = printed.split(f"{_MARK}\n")[1:]
    assert len(outputs) == len(chosen), printed
    return list(zip(chosen, outputs, strict=True))


def matches(shown: str, printed: str) -> bool:
    expected, actual = shown.strip().splitlines(), printed.strip().splitlines()
    return len(expected) == len(actual) and all(
        re.fullmatch(_pattern(line), said.rstrip()) for line, said in zip(expected, actual, strict=True)
    )


def _pattern(line: str) -> str:
    pattern, end = "", 0
    for found in _ID.finditer(line):
        pattern += re.escape(line[end : found.start()]) + _anything_like(found)
        end = found.end()
    return pattern + re.escape(line[end:])


def _anything_like(found: re.Match[str]) -> str:
    if found[0] == "…":
        return ".*"
    return f"{found[1]}_[0-9A-Za-z]+" if found[1] else rf"[0-9a-f]{{{len(found[0])}}}"


def _finished(command: list[str], server: RunningServer, directory: Path) -> str:
    home = directory / "reader"
    home.mkdir(exist_ok=True)
    path = f"{Path(opensession()).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = clean_environment(home, OPENSESSION_DATA_DIR=str(server.data), PATH=path, PYTHONPATH=str(ROOT / "client"))
    done = subprocess.run(
        command,
        cwd=server.workspace,
        env=environment,
        stdin=subprocess.DEVNULL,  # a command that reads it ends
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _shell(program: str, server: RunningServer, directory: Path) -> str:
    for name in ("curl", "jq"):
        if re.search(rf"\b{name}\b", program):
            needed(name)
    return _finished(["bash", "-euo", "pipefail", "-c", program], server, directory)


def _node(program: str, server: RunningServer, directory: Path) -> str:
    script = directory / "snippets.mjs"
    script.write_text(program)
    return _finished([needed("node"), str(script)], server, directory)


def _python(program: str, server: RunningServer, directory: Path) -> str:
    return _finished([sys.executable, "-c", program], server, directory)


def _browser(program: str, server: RunningServer, directory: Path) -> str:
    """As a page of the server's own origin would run it."""
    said: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type == "log" else None)
        page.goto(f"{server.base}/global/health")
        page.evaluate(f"async () => {{ {program}\n }}")
    return "".join(f"{line}\n" for line in said)


_MARKS = {
    "sh run": r"printf '\036\n'",
    "js run": f"console.log({json.dumps(_MARK)});",
    "js browser": f"console.log({json.dumps(_MARK)});",
    "python run": f"print({json.dumps(_MARK)})",
}
_RUN = {"sh run": _shell, "js run": _node, "js browser": _browser, "python run": _python}
KINDS = list(_RUN)
