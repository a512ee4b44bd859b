"""The requests of two plugins for Neovim, made with curl as their sources make them, and their reading of event streams.

- nickjvandyke/opencode.nvim at 2ddeebd: lua/opencode/server/init.lua
- sudo-tee/opencode.nvim at e510d32: lua/opencode/api_client.lua, server_job.lua and curl.lua

The plugins themselves are driven in test_neovim_plugins.py, where there is a Neovim that they run in.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from running_server import RunningServer

SECONDS = 120
CONFIG = {"permission": {"bash": "ask"}}


class Events:
    """What a plugin decodes."""

    def __init__(self, decoded: Iterator[dict[str, Any]]) -> None:
        self._decoded = decoded

    def until(self, wanted: str) -> dict[str, Any]:
        """The properties of the next event of a type."""
        return dict(next(event["properties"] for event in self._decoded if event["type"] == wanted))


@contextmanager
def following(command: list[str], decoded: Callable[[Iterator[str]], Iterator[dict[str, Any]]]) -> Iterator[Events]:
    """What a plugin makes of the lines that curl prints."""
    with subprocess.Popen([*command, "--max-time", str(SECONDS)], stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout
        try:
            events = Events(decoded(iter(curl.stdout)))
            events.until("server.connected")
            yield events
        finally:
            curl.kill()


def answered(command: list[str], body: str | None = None) -> Any:
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def prompt(call: Callable[..., Any], session: str, text: str) -> None:
    """By whoever: the terminal client that the plugin drives."""
    call("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})


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


def test_opencode_nvim_of_nickjvandyke(server: RunningServer, call: Callable[..., Any]) -> None:
    def nick(path: str, method: str = "GET", body: Any = None) -> Any:
        return answered(curl_of_nick(server.base, path, method, body))

    with following(curl_of_nick(server.base, "/event"), decoded_by_nick) as events:
        assert nick("/global/health")["healthy"] is True
        assert nick("/path")["directory"] == str(server.workspace)
        assert any(agent["name"] == "build" for agent in nick("/agent"))

        session = nick("/session", "POST", {"title": "From the terminal"})["id"]
        assert session in [each["id"] for each in nick("/session")]
        steered = {"tui.prompt.append": {"text": "hello"}, "tui.command.execute": {"command": "prompt.submit"}}
        for type_, properties in steered.items():
            assert nick("/tui/publish", "POST", {"type": type_, "properties": properties}) is True
            assert events.until(type_) == properties
        assert nick("/tui/select-session", "POST", {"sessionID": session}) is True
        assert events.until("tui.session.select") == {"sessionID": session}

        prompt(call, session, "run echo allowed")
        assert nick(f"/permission/{events.until('permission.asked')['id']}/reply", "POST", {"reply": "once"}) is True
        assert events.until("session.idle")["sessionID"] == session


# sudo-tee/opencode.nvim


def decoded_by_sudo(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Line by line; what is no JSON is passed over."""
    for line in lines:
        text = re.sub(r"^data:\s*", "", line).strip()
        if text.startswith("{"):
            yield json.loads(text)["payload"]


def test_a_conversation_of_opencode_nvim_of_sudo_tee(server: RunningServer, call: Callable[..., Any]) -> None:
    """An absent body is none; `false` is sent as an empty object."""
    query = f"?directory={quote(str(server.workspace), safe='')}"

    def sudo(method: str, path: str, body: Any = None) -> Any:
        flags = [*([] if method == "GET" else ["-X", method]), "-H", "Content-Type: application/json"]
        sends, sent = ([], None) if body is None else (["-d", "@-"], json.dumps(body or {}))
        return answered(["curl", "-s", "--no-buffer", *flags, *sends, f"{server.base}{path}{query}"], sent)

    with following(["curl", "-s", "--no-buffer", f"{server.base}/global/event{query}"], decoded_by_sudo) as events:
        session = sudo("POST", "/session", False)["id"]
        path = f"/session/{session}"
        assert sudo("PATCH", path, {"title": "Renamed"})["title"] == "Renamed"
        answer = sudo("POST", f"{path}/message", {"parts": [{"type": "text", "text": "write made.txt: one"}]})
        assert answer["info"]["finish"] == "stop" and events.until("session.idle")["sessionID"] == session

        asked = sudo("GET", f"{path}/message")[0]["info"]["id"]
        assert sudo("POST", f"{path}/revert", {"messageID": asked})["revert"]["messageID"] == asked
        assert "revert" not in sudo("POST", f"{path}/unrevert")
        assert sudo("POST", f"{path}/share")["share"]["url"]
        assert "share" not in sudo("DELETE", f"{path}/share")
        prompt(call, session, "ask Which colour?: Red, Blue")
        question = events.until("question.asked")["id"]
        assert sudo("POST", f"/question/{question}/reply", {"answers": [["Red"]]}) is True
        assert sudo("POST", f"{path}/abort") is True
        assert sudo("DELETE", path) is True
