"""The recipe for ready-made frontends: a program that shows a page and passes its requests on, with the browser's `Origin`."""

import json
import shlex
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium
from doc_snippets import blocks
from running_server import ROOT, serving, this_checkout

PAGE = b"""<!doctype html><title>waits</title><script>
  fetch("/api/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"title": "From a frontend"}' })
    .then((answer) => answer.json())
    .then((answer) => (document.title = answer.title ?? answer.data.message))
</script>"""


class Frontend(BaseHTTPRequestHandler):
    upstream: str

    def do_GET(self) -> None:
        self._answer(200, "text/html", PAGE)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        passed_on = {name: self.headers[name] for name in ("Origin", "Content-Type")}
        request = urllib.request.Request(self.upstream + self.path.removeprefix("/api"), body, passed_on)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self._answer(answer.status, "application/json", answer.read())
        except urllib.error.HTTPError as refusal:
            self._answer(refusal.code, "application/json", refusal.read())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def frontend(upstream: str) -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OfOneServer", (Frontend,), {"upstream": upstream}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def recipe() -> dict[str, str]:
    """The variables that the page starts the server with."""
    [block] = [block for block in blocks((ROOT / "docs" / "frontends.md").read_text()) if block.kind == "sh frontend"]
    *variables, program, command = shlex.split(block.code)
    assert (program, command) == ("opensession", "serve")
    return dict(variable.split("=", 1) for variable in variables)


def ends_with(upstream: str) -> str:
    """What the frontend's page shows in the end."""
    with frontend(upstream) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function("document.title !== 'waits'")
        return str(page.title())


@pytest.mark.parametrize("variables", [recipe(), {}], ids=["recipe", "default"])
def test_a_frontend_that_passes_the_origin_on_may_write_by_the_recipe_alone(variables: dict[str, str], tmp_path: Path) -> None:
    command, environment = this_checkout()
    with serving(command, tmp_path, {**environment, **variables}) as server:
        shown = ends_with(server.base)
        with urllib.request.urlopen(f"{server.base}/session", timeout=60) as answer:
            titles = [session["title"] for session in json.load(answer)]
    if variables:
        assert (shown, titles) == ("From a frontend", ["From a frontend"])
    else:
        assert "OPENSESSION_CORS_ORIGINS" in shown and "`loopback`" in shown and titles == []
