"""HEAD, over the real HTTP server, which holds the length that an answer names against its body."""

import pytest
from over_sockets import clients
from polling import until
from running_app import RunningApp


async def test_a_head_is_that_of_what_get_answers(app: RunningApp) -> None:
    await app.post("/session", {})
    async with clients(app, 1) as [client]:
        for path in ("/global/health", "/session", "/config", "/", "/nowhere", "/session/ses_none", "/api/session/ses_none"):
            whole, head = await client.get(path), await client.request("HEAD", path)
            assert (head.status_code, head.content) == (whole.status_code, b""), path
            for name in ("content-type", "content-length"):
                assert head.headers[name] == whole.headers[name], path
        assert (await client.request("HEAD", "/session/ses_none/abort")).status_code == 405


async def test_the_head_of_a_stream_ends_at_once(app: RunningApp) -> None:
    before = app.services.bus.listeners()
    async with clients(app, 1) as [client]:
        for path in ("/event", "/global/event"):
            head = await client.request("HEAD", path, timeout=5)
            assert head.status_code == 200 and head.headers["content-type"].startswith("text/event-stream"), path
        await until(lambda: app.services.bus.listeners() <= before, seconds=5)


@pytest.mark.usefixtures("password")
async def test_a_head_needs_the_login_that_its_get_needs(app: RunningApp) -> None:
    async with clients(app, 1) as [client]:
        assert (await client.request("HEAD", "/global/health")).status_code == 200
        assert (await client.request("HEAD", "/session")).status_code == 401
