"""Requests that come at one moment: none undoes what another did, and none is answered wrongly."""

import asyncio

from running_app import RunningApp, text_part

AT_ONCE = 12


async def test_changes_at_once_are_all_kept(app: RunningApp) -> None:
    """Of the configuration, of a project, and of keys."""
    names = [f"of-{number}" for number in range(AT_ONCE)]
    agents = [{"agent": {name: {"description": name, "prompt": "Be brief."}}} for name in names]
    await asyncio.gather(*(app.call("PATCH", "/config", change) for change in agents))
    assert set(names) <= (await app.get("/config"))["agent"].keys()
    path = f"/project/{(await app.get('/project/current'))['id']}"
    changes = {"name": "Named", "icon": {"color": "red"}, "commands": {"start": "make"}}
    await asyncio.gather(*(app.call("PATCH", path, {key: value}) for key, value in changes.items()))
    assert (await app.get("/project/current")).items() >= changes.items()
    await asyncio.gather(*(app.call("PUT", f"/auth/{name}", {"type": "api", "key": "k"}) for name in names))
    assert set(names) <= app.services.auth.all().keys()


async def test_a_session_that_is_shared_and_deleted_at_once_is_gone(app: RunningApp) -> None:
    for _ in range(20):
        path = f"/session/{(await app.create_session())['id']}"
        shared, deleted = await asyncio.gather(app.client.post(f"{path}/share"), app.client.delete(path))
        assert (shared.status_code in (200, 404), deleted.status_code) == (True, 200)
        if shared.status_code == 200:
            link = shared.json()["share"]["url"].removeprefix("http://127.0.0.1:4096")
            await app.get(f"{link}/session", expect=404)


async def test_prompts_while_the_directory_is_disposed_of_are_answered_or_aborted(app: RunningApp) -> None:
    sessions = [(await app.create_session())["id"] for _ in range(4)]
    for _ in range(10):
        prompts = [asyncio.create_task(app.prompt(session, "Hi")) for session in sessions]
        await asyncio.sleep(0)
        await app.post("/instance/dispose")
        errors = [answer["info"]["error"]["name"] for answer in await asyncio.gather(*prompts) if "error" in answer["info"]]
        assert set(errors) <= {"MessageAbortedError"}


async def test_a_prompt_is_taken_while_the_prompt_before_it_is_deleted(app: RunningApp) -> None:
    """The model of the newest prompt is the next one's."""
    path = f"/session/{(await app.create_session())['id']}/message"
    body = {"noReply": True, "parts": [text_part("Hi")]}
    for _ in range(40):
        newest = (await app.post(path, body))["info"]["id"]
        prompts = (app.client.post(path, json=body) for _ in range(3))
        deleted, *taken = await asyncio.gather(app.client.delete(f"{path}/{newest}"), *prompts)
        assert deleted.status_code in (200, 409)
        assert [response.status_code for response in taken] == [200] * 3
