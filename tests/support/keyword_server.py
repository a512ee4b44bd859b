"""A server process whose model does what a prompt names, and whose database refuses to commit while a file says so.

`python keyword_server.py PORT`, in the workspace that it serves. `do write 3` calls a tool, `do slow 4` answers slowly: TURNS.
REFUSALS_FILE names the file: while it is there, one commit in REFUSE_ONE_IN fails, at times several in a row; REFUSALS_SEED
decides which.
"""

import logging
import os
import random
import re
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from threading import current_thread
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError
from turns import bash, call, say, task

from app.http_server import http_server
from app.main import create_app
from app.providers.base import ModelRequest, TextBlock, UserTurn
from app.providers.scripted import ScriptedProvider, ScriptedTurn, parse_turn
from app.server import Choices
from app.settings import Settings

REFUSALS_FILE = "REFUSALS_FILE"
REFUSALS_SEED = "REFUSALS_SEED"
REFUSE_ONE_IN = 25
MAX_OUTAGE = 12
"""Commits that fail in a row."""
REFUSED = "the test refuses this commit"

SLOW_DOWN = {"status": 429, "headers": {"retry-after-ms": "50"}, "message": "slow down"}
OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]


def text(words: int, delay: float = 0.0) -> dict[str, Any]:
    return say(" ".join(f"word{number}" for number in range(words)), chunks=words, delay=delay)


def write(number: str) -> dict[str, Any]:
    return call("write", filePath=f"made/{number}.txt", content=f"one\ntwo {number}\n")


FAST = [text(20)]
QUESTION = call("question", questions=[{"question": "Which?", "header": "W", "options": OPTIONS}])
TURNS: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    "fast": lambda number: FAST,
    "burst": lambda number: [{"reasoning": "Hm. " * 20, "chunks": 20}, text(300)],
    "slow": lambda number: [text(20, 0.02)],
    "write": lambda number: [text(5), write(number)],
    "run": lambda number: [bash(f"echo {number}; sleep 0.05")],
    "several": lambda number: [text(3), bash(f"echo {number}"), write(number), call("read", filePath="a.txt")],
    "subagent": lambda number: [task(f"do several {number}")],
    "subagents": lambda number: [task(f"do slow {number}"), task(f"do ask {number}")],
    "ask": lambda number: [bash(f"touch made-{number}")],
    "question": lambda number: [QUESTION],
    "retry": lambda number: FAST if random.random() < 0.3 else [SLOW_DOWN],
    "fail": lambda number: [{"status": 400, "message": "no"}],
    "cut": lambda number: [text(10), {"cut": True}],
    "todo": lambda number: [call("todowrite", todos=[{"id": "1", "content": number, "status": "pending", "priority": "low"}])],
}
"""What the model answers, by the word that names it; the number tells prompts, files and commands apart."""


def answer(request: ModelRequest) -> ScriptedTurn:
    """Does what the newest prompt names; after a tool, and for a request for a summary, it writes a short text."""
    last = request.messages[-1]
    words = [block.text for block in last.content if isinstance(block, TextBlock)] if isinstance(last, UserTurn) else []
    named = re.search(r"\bdo (\w+) (\d+)", words[-1]) if words else None
    return parse_turn(TURNS[named[1]](named[2]) if named else [text(6)])


class Refusals:
    """Fails commits as a full disk or a lost connection does, before the work is done or when it is to be committed."""

    def __init__(self, while_there: Path, seed: int) -> None:
        self._while_there = while_there
        self._random = random.Random(seed)
        self._left = 0

    def before_execute(self, _connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement == "BEGIN IMMEDIATE" and self._random.random() < 0.5:
            self._refuse_now_and_then(statement)

    def before_commit(self, _connection: Connection) -> None:
        """Reads are not refused."""
        if current_thread().name.startswith("database-writer"):
            self._refuse_now_and_then("COMMIT")

    def _refuse_now_and_then(self, statement: str) -> None:
        if self._is_next():
            raise OperationalError(statement, {}, sqlite3.OperationalError(REFUSED))

    def _is_next(self) -> bool:
        if not self._while_there.exists():
            return False
        if self._left == 0 and self._random.randrange(REFUSE_ONE_IN) == 0:
            self._left = self._random.choice([1, 1, 2, MAX_OUTAGE])
        self._left = max(self._left - 1, 0) if (refused := self._left > 0) else 0
        return refused


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings, bound = Settings(), socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", int(sys.argv[1])))
    provider = ScriptedProvider(otherwise=answer, keeps_requests=False)
    application = create_app(settings, port=bound.getsockname()[1], choices=Choices(scripted=lambda: provider))
    if REFUSALS_FILE in os.environ:
        refusals = Refusals(Path(os.environ[REFUSALS_FILE]), int(os.environ[REFUSALS_SEED]))
        event.listen(Engine, "before_cursor_execute", refusals.before_execute)
        event.listen(Engine, "commit", refusals.before_commit)
    http_server(application, settings).run(sockets=[bound])


if __name__ == "__main__":
    main()
