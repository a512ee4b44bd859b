"""The client while its server is killed and started again: prompts, permissions and streams go on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import pytest
from real_server import RealServer, real_server

from opensession_client import AsyncOpensession, StreamedEvent, models, operations

SECONDS = 240


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    with real_server(tmp_path) as running:
        yield running


def prompt_of(text: str) -> models.PromptInput:
    return models.PromptInput(parts=[models.TextPartInput(text=text)])


async def texts_of(client: AsyncOpensession, session_id: str) -> dict[str, str]:
    messages = await client.call(operations.session_messages(session_id))
    return {part.id: part.text for message in messages for part in message.parts if isinstance(part, models.TextPart)}


class Follower:
    """What a program knows that has nothing but the stream: each stored event's id, and the texts."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, str]] = []
        self.texts: dict[str, str] = {}
        self.streams = asyncio.Event()

    async def follow(self, client: AsyncOpensession, session_id: str, connected: asyncio.Event) -> None:
        async with client.stream() as events:
            newest = events.last_event_id
            async for event in events:
                connected.set()
                if events.last_event_id != newest:
                    newest = events.last_event_id
                    self.stored.append((str(newest), event.type))
                self._fold(event)
                if isinstance(event, models.EventSessionIdle) and event.properties.session_id == session_id:
                    return

    def _fold(self, event: StreamedEvent) -> None:
        if isinstance(event, models.EventMessagePartUpdated) and isinstance(event.properties.part, models.TextPart):
            self.texts[event.properties.part.id] = event.properties.part.text
        if isinstance(event, models.EventMessagePartDelta):
            self.texts[event.properties.part_id] = self.texts.get(event.properties.part_id, "") + event.properties.delta
            self.streams.set()


async def test_a_stream_misses_and_doubles_nothing_when_the_server_is_killed(server: RealServer) -> None:
    follower, connected = Follower(), asyncio.Event()
    async with AsyncOpensession(server.url, reconnect_seconds=None) as client, asyncio.timeout(SECONDS):
        session = await client.create_session()
        following = asyncio.create_task(follower.follow(client, session.id, connected))
        await connected.wait()
        await client.call(operations.session_prompt_async(session.id, prompt_of("long 300")))
        await follower.streams.wait()
        server.kill()
        await asyncio.to_thread(server.start)
        await following
        stored = await texts_of(client, session.id)
        assert follower.texts == stored and any(len(text.split()) == 300 for text in stored.values())
        assert follower.stored[1:] == await replayed(client, follower.stored[0][0], upto=follower.stored[-1][0])


async def replayed(client: AsyncOpensession, after: str, upto: str) -> list[tuple[str, str]]:
    """The events of the journal."""
    found: list[tuple[str, str]] = []
    async with client.stream(last_event_id=after) as events:
        async for event in events:
            if events.last_event_id != after:
                found.append((str(events.last_event_id), event.type))
                after = str(events.last_event_id)
            if after == upto:
                return found
    raise AssertionError("an event stream has no end")


async def test_a_prompt_is_answered_although_the_server_is_killed(server: RealServer) -> None:
    streams = asyncio.Event()

    def see(event: StreamedEvent) -> None:
        if isinstance(event, models.EventMessagePartDelta):
            streams.set()

    async with AsyncOpensession(server.url) as client, asyncio.timeout(SECONDS):
        session = await client.create_session()
        prompting = asyncio.create_task(client.prompt(session.id, "long 300", on_event=see))
        await streams.wait()
        server.kill()
        await asyncio.to_thread(server.start)
        answer = await prompting
        roles = [message.info.role async for message in client.messages(session.id)]
    assert len(answer.text.split()) == 300 and roles.count("user") == 1


async def test_a_permission_is_answered_after_the_server_was_killed(server: RealServer) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()
    requests: list[str] = []

    async def permit(request: models.PermissionRequest) -> Literal["once"]:
        requests.append(request.id)
        asked.set()
        await decided.wait()
        return "once"

    async with AsyncOpensession(server.url) as client, asyncio.timeout(SECONDS):
        session = await client.create_session(permission=[models.Rule(permission="bash", pattern="*", action="ask")])
        prompting = asyncio.create_task(client.prompt(session.id, "run echo hello", on_permission=permit))
        await asked.wait()
        server.kill()
        decided.set()
        await asyncio.to_thread(server.start)
        answer = await prompting
    assert len(requests) == 1
    assert "completed" in [part.state.status for part in answer.parts if isinstance(part, models.ToolPart)]


async def test_a_server_that_stays_away_is_said_after_a_while(server: RealServer) -> None:
    async with AsyncOpensession(server.url, reconnect_seconds=0.5) as client, client.stream() as events:
        await anext(events)
        server.kill()
        with pytest.raises(httpx.TransportError):
            async for _ in events:
                pass
