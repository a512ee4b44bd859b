"""The requests of two plugins for Neovim, made with curl as their sources make them, and their reading of event streams.

- nickjvandyke/opencode.nvim at 2ddeebd: lua/opencode/server/init.lua
- sudo-tee/opencode.nvim at e510d32: lua/opencode/api_client.lua, server_job.lua and curl.lua

The plugins themselves are driven in test_neovim_plugins.py, where there is a Neovim that they run in.
"""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from running_server import RunningServer

SECONDS = 120
CONFIG = {"permission": {"bash": "ask"}}


class Events:
    """What a plugin decodes, in a thread of its own."""

    def __init__(self, decoded: Iterator[dict[str, Any]]) -> None:
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=lambda: [self._queue.put(event) for event in decoded], daemon=True).start()

    def until(self, wanted: str) -> dict[str, Any]:
        """The properties of the next event of a type."""
        while (event := self._queue.get(timeout=SECONDS))["type"] != wanted:
            pass
        return dict(event["properties"])


@contextmanager
def following(command: list[str]) -> Iterator[Iterator[str]]:
    """The lines that curl prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout
        try:
            yield iter(curl.stdout)
        finally:
            curl.kill()


def answered(command: list[str], body: str | None = None) -> Any:
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


# nickjvandyke/opencode.nvim


def curl_of_nick(base: str, path: str, method: str = "GET", body: Any = None) -> list[str]:
    """Without its --max-time of 2 s, which a slow machine would miss."""
    headers = ("Content-Type: application/json", "Accept: application/json", "Accept: text/event-stream")
    flags = [part for header in headers for part in ("-H", header)]
    data = [] if body is None else ["-d", json.dumps(body)]
    return ["curl", "-s", "-S", "--fail-with-body", "-X", method, *flags, "-N", *data, base + path]


def decoded_by_nick(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Whatever stands between two empty lines is one document, less `data: `: an `id:` line would break it."""
    waiting: list[str] = []
    for line in lines:
        if text := line.rstrip("\n"):
            waiting.append(re.sub(r"^data: ?", "", text))
        elif waiting:
            yield json.loads("".join(waiting))
            waiting.clear()


def test_opencode_nvim_of_nickjvandyke(server: RunningServer) -> None:
    def call(path: str, method: str = "GET", body: Any = None) -> Any:
        return answered(curl_of_nick(server.base, path, method, body))

    with following(curl_of_nick(server.base, "/event")) as lines:
        events = Events(decoded_by_nick(lines))
        events.until("server.connected")
        assert call("/global/health")["healthy"] is True
        assert call("/path")["directory"] == str(server.workspace)
        assert any(agent["name"] == "build" for agent in call("/agent"))

        assert call("/tui/publish", "POST", {"type": "tui.prompt.append", "properties": {"text": "hello"}}) is True
        assert events.until("tui.prompt.append") == {"text": "hello"}
        assert call("/tui/publish", "POST", {"type": "tui.command.execute", "properties": {"command": "prompt.submit"}}) is True
        assert events.until("tui.command.execute") == {"command": "prompt.submit"}

        session = call("/session", "POST", {"title": "From the terminal"})["id"]
        assert session in [each["id"] for each in call("/session")]
        assert call("/tui/select-session", "POST", {"sessionID": session}) is True
        assert events.until("tui.session.select") == {"sessionID": session}

        prompt(server, session, "run echo allowed")
        assert call(f"/permission/{events.until('permission.asked')['id']}/reply", "POST", {"reply": "once"}) is True
        assert events.until("session.idle")["sessionID"] == session


def prompt(server: RunningServer, session: str, text: str) -> None:
    """By whoever: the terminal client that the plugin drives."""
    body = json.dumps({"parts": [{"type": "text", "text": text}]})
    path = f"{server.base}/session/{session}/prompt_async"
    subprocess.run(["curl", "-sf", path, "-H", "Content-Type: application/json", "-d", body], check=True, timeout=SECONDS)


# sudo-tee/opencode.nvim


def curl_of_sudo(method: str, url: str, *, sends: bool) -> list[str]:
    verb = [] if method == "GET" else ["-X", method]
    return ["curl", "-s", "--no-buffer", *verb, "-H", "Content-Type: application/json", *(["-d", "@-"] if sends else []), url]


def decoded_by_sudo(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Line by line; what is no JSON is passed over."""
    for line in lines:
        text = re.sub(r"^data:\s*", "", line).strip()
        if text.startswith("{"):
            yield json.loads(text)["payload"]


def test_a_conversation_of_opencode_nvim_of_sudo_tee(server: RunningServer) -> None:
    """An absent body is none; `false` is sent as an empty object."""
    directory = quote(str(server.workspace), safe="")

    def call(method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body or {})
        url = f"{server.base}{path}?directory={directory}"
        return answered(curl_of_sudo(method, url, sends=sent is not None), sent)

    with following(["curl", "-s", "--no-buffer", f"{server.base}/global/event?directory={directory}"]) as lines:
        events = Events(decoded_by_sudo(lines))
        events.until("server.connected")
        session = call("POST", "/session", False)["id"]
        path = f"/session/{session}"
        assert call("PATCH", path, {"title": "Renamed"})["title"] == "Renamed"
        answer = call("POST", f"{path}/message", {"parts": [{"type": "text", "text": "write made.txt: one"}]})
        assert answer["info"]["finish"] == "stop" and events.until("session.idle")["sessionID"] == session

        asked = call("GET", f"{path}/message")[0]["info"]["id"]
        assert call("POST", f"{path}/revert", {"messageID": asked})["revert"]["messageID"] == asked
        assert not (server.workspace / "made.txt").exists()
        assert "revert" not in call("POST", f"{path}/unrevert")
        assert (server.workspace / "made.txt").exists()

        assert call("POST", f"{path}/fork", {})["title"] == "Renamed (fork #1)"
        assert call("POST", f"{path}/share")["share"]["url"]
        assert "share" not in call("DELETE", f"{path}/share")
        prompt(server, session, "ask Which colour?: Red, Blue")
        question = events.until("question.asked")["id"]
        assert call("POST", f"/question/{question}/reply", {"answers": [["Red"]]}) is True
        prompt(server, session, "run echo refused")
        permission = events.until("permission.asked")["id"]
        assert call("POST", f"/permission/{permission}/reply", {"reply": "reject"}) is True
        assert call("POST", f"{path}/abort") is True
        assert call("DELETE", path) is True
