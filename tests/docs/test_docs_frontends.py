"""The recipe for ready-made frontends: a program that shows a page and passes its requests on, with the browser's `Origin`."""

import shlex
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest
from chromium import chromium
from doc_snippets import blocks
from loopback import QuietHandler, on_loopback
from running_server import ROOT, serving_here

PAGE = b"""<!doctype html><title>waits</title><script>
  fetch("/api/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"title": "From a frontend"}' })
    .then((answer) => answer.json())
    .then((answer) => (document.title = answer.title ?? answer.data.message))
</script>"""


def frontend(upstream: str) -> AbstractContextManager[int]:
    """Its port."""

    class Frontend(QuietHandler):
        def do_GET(self) -> None:
            self.reply(PAGE, "text/html")

        def do_POST(self) -> None:
            passed_on = {name: self.headers[name] for name in ("Origin", "Content-Type")}
            answer = httpx2.post(upstream + self.path.removeprefix("/api"), content=self.body(), headers=passed_on, timeout=60)
            self.reply(answer.content, status=answer.status_code)

    return on_loopback(Frontend)


def recipe() -> dict[str, str]:
    """The variables that the page starts the server with."""
    [block] = [block for block in blocks((ROOT / "docs" / "frontends.md").read_text()) if block.kind == "sh frontend"]
    *variables, program, command = shlex.split(block.code)
    assert (program, command) == ("opensession", "serve")
    return dict(variable.split("=", 1) for variable in variables)


def ends_with(upstream: str) -> str:
    """What the frontend's page shows in the end."""
    with frontend(upstream) as port, chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}")
        page.wait_for_function("document.title !== 'waits'")
        return str(page.title())


@pytest.mark.parametrize("variables", [recipe(), {}], ids=["recipe", "default"])
def test_a_frontend_that_passes_the_origin_on_may_write_by_the_recipe_alone(variables: dict[str, str], tmp_path: Path) -> None:
    with serving_here(tmp_path, **variables) as server:
        shown = ends_with(server.base)
        titles = [session["title"] for session in httpx2.get(f"{server.base}/session", timeout=60).json()]
    if variables:
        assert (shown, titles) == ("From a frontend", ["From a frontend"])
    else:
        assert "OPENSESSION_CORS_ORIGINS" in shown and "`loopback`" in shown and titles == []
