"""How tests configure MCP servers: the plain one over stdio, one from PyPI, and one made with the SDK over HTTP."""

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from running_server import answers, free_port

HERE = Path(__file__).parent


def plain(*modes: str, **fields: Any) -> dict[str, Any]:
    return {"type": "local", "command": [sys.executable, "-S", str(HERE / "plain_mcp_server.py"), *modes], **fields}


def from_pypi() -> dict[str, Any]:
    return {"type": "local", "command": [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]}


@contextmanager
def over_http(*options: str, port: int | None = None) -> Iterator[str]:
    """A server in a process of its own; its URL. `options` are those of http_mcp_server.py."""
    port = port or free_port()
    with subprocess.Popen([sys.executable, str(HERE / "http_mcp_server.py"), str(port), *options]) as process:
        try:
            deadline = time.monotonic() + 60
            while not answers(f"http://127.0.0.1:{port}/"):
                assert process.poll() is None and time.monotonic() < deadline, "the MCP server did not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


async def visit(page: str) -> str:
    """Sign in as a browser does; where it is sent back to."""

    def open_page() -> str:
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        try:
            urllib.request.build_opener(Stay).open(page)
        except urllib.error.HTTPError as answer:
            return answer.headers["location"]
        raise AssertionError("no redirect came")

    return await asyncio.to_thread(open_page)


def running(directory: Path) -> list[int]:
    """The servers that were started to work in this directory."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        program, *arguments = process.info["cmdline"] or [""]
        if program == sys.executable and "mcp" in " ".join(arguments) and process.info["cwd"] == str(directory):
            found.append(process.info["pid"])
    return found
