#!/usr/bin/env python3
"""The least that a server of these libraries does for the benchmark's traffic: what is above it is Opensession's own.

`bench_floor.py serve --port N` creates and lists sessions, passes a prompt to the model, streams the text to listeners, and
stores session, prompt, answer and title, each in a flushed commit of its own. There are no rules, tools, snapshots,
diffs, replay of events, or anything else that makes a turn. The model's address comes from ./opencode.json.
"""

import argparse
import asyncio
import itertools
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import orjson
import uvicorn
from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event, insert, select

rows = Table(
    "row",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("session", String, index=True),
    Column("kind", String),
    Column("body", String),
)
numbers = itertools.count(1)
listeners: set[asyncio.Queue[bytes]] = set()
running: set[asyncio.Task[None]] = set()


class ModelName(BaseModel):
    modelID: str


class TextOfPrompt(BaseModel):
    type: str
    text: str


class Prompt(BaseModel):
    model: ModelName
    parts: list[TextOfPrompt]


class Store:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False})
        event.listen(engine, "connect", flushes_every_commit)
        rows.metadata.create_all(engine)
        self._connection = engine.connect()
        self._thread = ThreadPoolExecutor(1)

    async def put(self, session: str, kind: str, body: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._put, session, kind, orjson.dumps(body).decode())

    async def newest_sessions(self, limit: int) -> list[bytes]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._newest_sessions, limit)

    def _newest_sessions(self, limit: int) -> list[bytes]:
        query = select(rows.c.body).where(rows.c.kind == "session").order_by(rows.c.id.desc()).limit(limit)
        with self._connection.begin():
            return [body.encode() for body in self._connection.scalars(query)]

    def _put(self, session: str, kind: str, body: str) -> None:
        with self._connection.begin():
            self._connection.execute(insert(rows), {"session": session, "kind": kind, "body": body})


def flushes_every_commit(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def announce(kind: str, **properties: Any) -> None:
    frame = b"data: " + orjson.dumps({"type": kind, "properties": properties}) + b"\n\n"
    for listener in listeners:
        listener.put_nowait(frame)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.store = Store(Path(os.environ["OPENSESSION_DATA_DIR"]) / "floor.db")
    app.state.model_url = read_model_url()
    async with httpx2.AsyncClient(timeout=None) as app.state.model:
        yield


def read_model_url() -> str:
    address: str = json.loads(Path("opencode.json").read_text())["provider"]["fake"]["options"]["baseURL"]
    return f"{address}/chat/completions"


app = FastAPI(lifespan=lifespan)


@app.get("/global/health")
async def health() -> dict[str, bool]:
    return {"healthy": True}


@app.get("/event")
async def events() -> StreamingResponse:
    return StreamingResponse(frames(), media_type="text/event-stream")


@app.post("/session")
async def create() -> Response:
    session = {"id": f"ses_{next(numbers):020}"}
    await app.state.store.put(session["id"], "session", session)
    announce("session.created", info=session)
    return Response(orjson.dumps(session), media_type="application/json")


@app.get("/session")
async def newest(limit: int) -> Response:
    return Response(b"[" + b",".join(await app.state.store.newest_sessions(limit)) + b"]", media_type="application/json")


@app.post("/session/{session_id}/message")
async def prompt(session_id: str, body: Prompt) -> Response:
    await app.state.store.put(session_id, "prompt", body.model_dump())
    text = await ask(body.model.modelID, body.parts[0].text, partial(announce_delta, session_id))
    answer = {"parts": [{"type": "text", "text": text}]}
    await app.state.store.put(session_id, "answer", answer)
    announce("session.idle", sessionID=session_id)
    task = asyncio.create_task(title(session_id, body.parts[0].text))
    running.add(task)
    task.add_done_callback(running.discard)
    return Response(orjson.dumps(answer), media_type="application/json")


async def title(session_id: str, text: str) -> None:
    await app.state.store.put(session_id, "title", await ask("title", text, lambda delta: None))


async def ask(model: str, text: str, take: Callable[[str], None]) -> str:
    request = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
    texts = []
    async with app.state.model.stream("POST", app.state.model_url, content=orjson.dumps(request)) as response:
        async for line in response.aiter_lines():
            for delta in deltas(line.encode()):
                texts.append(delta)
                take(delta)
    return "".join(texts)


def deltas(line: bytes) -> list[str]:
    if not line.startswith(b"data: {"):
        return []
    return [text for choice in orjson.loads(line[6:])["choices"] if (text := choice["delta"].get("content"))]


def announce_delta(session_id: str, delta: str) -> None:
    announce("message.part.delta", sessionID=session_id, field="text", delta=delta)


async def frames() -> AsyncIterator[bytes]:
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    listeners.add(queue)
    try:
        yield b'data: {"type":"server.connected","properties":{}}\n\n'
        while True:
            waiting = [await queue.get()]
            while not queue.empty():
                waiting.append(queue.get_nowait())
            yield b"".join(waiting)
    finally:
        listeners.discard(queue)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("command", choices=["serve"])
    arguments.add_argument("--port", type=int, required=True)
    uvicorn.run(app, port=arguments.parse_args().port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
