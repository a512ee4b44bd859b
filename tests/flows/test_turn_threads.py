"""A turn's work in threads counts as that of whoever sent its prompt, in the session's directory."""

from collections.abc import AsyncGenerator
from pathlib import Path

from running_app import running_app
from user_logins import user

from app.provider.base import ModelRequest, StreamEvent
from app.provider.scripted import ScriptedProvider
from app.util.shared_threads import WORKING_FOR, Owner


class Noting(ScriptedProvider):
    def __init__(self) -> None:
        super().__init__(otherwise="Done.")
        self.owners: list[Owner] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.owners.append(WORKING_FOR.get())
        async for event in super().stream(request):
            yield event


async def test_a_member_s_turn(tmp_path: Path) -> None:
    provider, root = Noting(), tmp_path / "anna"
    root.mkdir()
    async with running_app(tmp_path, provider=provider) as app, user(app, "anna", roots=[root]) as anna:
        session = (await anna.create_session())["id"]
        await anna.prompt(session, "Hi")
        await anna.prompt_async(session, "And now?")
        await anna.prompt(session, "Then?", whenBusy="queue")
    assert provider.owners and {*provider.owners} == {Owner("anna", str(root))}


async def test_a_turn_without_users(tmp_path: Path) -> None:
    provider = Noting()
    async with running_app(tmp_path, provider=provider) as app:
        await app.prompt((await app.create_session())["id"], "Hi")
        assert {*provider.owners} == {Owner("", str(app.directory))}
