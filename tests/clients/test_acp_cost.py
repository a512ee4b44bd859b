"""What `opensession acp` costs beside `/event`: CPU of 1,000 tokens, the first token. How long `initialize` takes is measured in
test_acp_robust.py.

`OPENSESSION_LONG=1 pytest -s tests/clients/test_acp_cost.py` on a machine that does nothing else.
"""

import asyncio
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
from acp_editor import Desk, Editor
from long_form import LONG
from real_server import real_server

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

TOKENS, ROUNDS, WARM_UP = 1000, 15, 2
SETTLE_SECONDS = 0.5
"""Titles and diffs come behind a turn."""
MAX_CPU, MAX_LATER = 2.0, 0.020


class Cost(NamedTuple):
    cpu: float
    first: float


class TimedEditor(Editor):
    first: float | None = None

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        if self.first is None and update.session_update == "agent_message_chunk":
            self.first = time.perf_counter()
        await super().session_update(session_id, update, **more)


def cpu_of(process: psutil.Process) -> float:
    """With that of the processes that it has had."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


async def by_editor(editor: TimedEditor, process: psutil.Process, directory: Path) -> Cost:
    await editor.new(directory)
    await asyncio.sleep(SETTLE_SECONDS)
    editor.first, before, began = None, cpu_of(process), time.perf_counter()
    await editor.say(f"long {TOKENS}")
    assert editor.first is not None
    await asyncio.sleep(SETTLE_SECONDS)
    return Cost(cpu_of(process) - before, editor.first - began)


async def by_events(http: httpx2.AsyncClient, process: psutil.Process, query: str) -> Cost:
    session_id = (await http.post("/session", json={})).json()["id"]
    async with http.stream("GET", f"/event{query}") as events:
        pieces = events.aiter_bytes()
        await anext(pieces)
        await asyncio.sleep(SETTLE_SECONDS)
        before, began, first = cpu_of(process), time.perf_counter(), None
        body = {"parts": [{"type": "text", "text": f"long {TOKENS}"}]}
        prompting = asyncio.create_task(http.post(f"/session/{session_id}/prompt_async", json=body))
        async for piece in pieces:
            if first is None and b"tok0" in piece:
                first = time.perf_counter()
            if b'"session.idle"' in piece:
                break
        assert first is not None and (await prompting).is_success
        await asyncio.sleep(SETTLE_SECONDS)
        return Cost(cpu_of(process) - before, first - began)


def cpu_per_turn(costs: list[Cost]) -> float:
    """The mean: a process's times are told in hundredths of a second."""
    return fmean(cost.cpu for cost in costs[WARM_UP:])


def first_token(costs: list[Cost]) -> float:
    return median(cost.first for cost in costs[WARM_UP:])


async def test_an_editor_costs_little_more_than_a_client_of_the_events(desk: Desk, tmp_path: Path, figure: Any) -> None:
    edited: list[Cost] = []
    followed: list[Cost] = []
    deltas: list[Cost] = []
    with real_server(tmp_path / "far") as server:
        async with desk.editor(TimedEditor()) as editor, httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
            process = psutil.Process(editor.process.pid)
            for _ in range(WARM_UP + ROUNDS):
                edited.append(await by_editor(editor, process, desk.directory))
                followed.append(await by_events(http, server.process, ""))
                deltas.append(await by_events(http, server.process, "?parts=delta"))
    cpu, beside, lean = map(cpu_per_turn, (edited, followed, deltas))
    later = first_token(edited) - first_token(followed)
    figure(
        f"{TOKENS} tokens by opensession acp: {cpu:.3f} s of CPU; by /event {beside:.3f} s, {cpu / beside:.2f} times; "
        f"by /event?parts=delta {lean:.3f} s, {cpu / lean:.2f} times; first token {later * 1000:+.1f} ms"
    )
    assert cpu <= MAX_CPU * beside and cpu <= MAX_CPU * lean and later <= MAX_LATER
