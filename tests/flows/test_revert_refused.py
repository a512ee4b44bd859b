"""A revert whose end the database refuses to store: files and session agree, whatever is answered."""

from pathlib import Path
from typing import Any

import pytest
from refused_commits import refused_commits
from revert_steps import bash, play
from running_app import RunningApp, running_app
from turns import talking

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]


async def changed_file(app: RunningApp) -> tuple[str, str]:
    """The session, and its prompt that changed a.txt."""
    session = (await app.create_session(title="T", permission=ALLOW))["id"]
    return session, await play(app, session, bash("echo two > a.txt"))


def text(app: RunningApp) -> str:
    return (app.directory / "a.txt").read_text()


async def ask(app: RunningApp, session: str, way: str, **body: Any) -> int:
    return (await app.client.post(f"/session/{session}/{way}", json=body)).status_code


async def test_a_revert_whose_end_is_refused_for_a_moment_is_stored_after_it(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session, prompt = await changed_file(app)
        refusals = iter(range(3))
        with refused_commits() as commits:
            commits.when = lambda: text(app) == "hello\nworld\n" and next(refusals, None) is not None
            assert await ask(app, session, "revert", messageID=prompt) == 200
        assert (await app.get(f"/session/{session}"))["revert"]["messageID"] == prompt
        assert next(refusals, None) is None


@pytest.mark.parametrize("way", ["revert", "unrevert"])
async def test_what_is_refused_for_long_leaves_the_files_as_the_session_says(tmp_path: Path, way: str) -> None:
    async with running_app(tmp_path) as app:
        session, prompt = await changed_file(app)
        before = await app.messages(session)
        if way == "unrevert":
            assert await ask(app, session, "revert", messageID=prompt) == 200
        seen = text(app)

        def has_begun() -> bool:
            commits.refuses = commits.refuses or text(app) != seen
            return commits.refuses

        with refused_commits() as commits:
            commits.when = has_begun
            assert await ask(app, session, way, messageID=prompt) == 503
            assert text(app) == "two\n"
        await app.prompt(session, "And now?")
        assert (await app.messages(session))[: len(before)] == before
        assert "revert" not in await app.get(f"/session/{session}")
        assert text(app) == "two\n"


async def test_a_revert_that_is_refused_gives_no_answer_to_a_message_that_asked_for_none(tmp_path: Path) -> None:
    async with talking(tmp_path, title="T") as (app, session):
        kept = (await app.prompt(session, "Keep this", noReply=True))["info"]["id"]
        with refused_commits() as commits:
            commits.starts_with = '"revert"'
            assert await ask(app, session, "revert", messageID=kept) == 503
        assert not app.services.live.get(session).unstored_end
