"""Web pages among the instructions: no turn waits for them once they were asked for."""

import time
from pathlib import Path

import pytest
from turns import bash, configured, priced, requests, say, talking
from web_page import web_page

from app import server
from app.context.system import InstructionPages

FIRST_WAIT = 1.0


async def test_a_page_that_hangs_is_waited_for_once_and_one_that_answers_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "InstructionPages", lambda: InstructionPages(first_wait=FIRST_WAIT))
    async with web_page("Never use tabs.") as page, web_page(hangs=True) as silent:
        workspace = configured(tmp_path, {**priced(), "instructions": [page.url, silent.url]})
        async with talking(tmp_path, workspace=workspace, title="Mine") as (app, session):
            seconds = []
            for _ in range(3):
                app.provider.add([bash("echo hi")], [bash("echo ho")], [say()])
                began = time.monotonic()
                await app.prompt(session, "Go on")
                seconds.append(time.monotonic() - began)
            assert all(f"Instructions from: {page.url}\nNever use tabs." in "".join(asked.system) for asked in requests(app))
        assert len(page.requests) == len(silent.requests) == 1
    assert seconds[0] > FIRST_WAIT / 2 and max(seconds) < 20 * FIRST_WAIT
