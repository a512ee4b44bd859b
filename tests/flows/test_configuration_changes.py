"""A turn runs with the configuration that it began with, whatever becomes of the files meanwhile."""

from pathlib import Path

import pytest
from running_app import running_app
from turns import bash, say, task, texts

BROKEN = {
    "no JSON": "{",
    "a field of the wrong type": '{"model": 5}',
    "a file that is missing": '{"model": "{file:missing.txt}"}',
}


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_subagents_run_with_the_configuration_of_their_caller(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = [[bash(f"echo '{broken}' > opencode.json")], [task("one"), task("two")], [say("In.")], [say("In.")], [say("Out.")]]
    async with running_app(tmp_path, turns=[*turns, [say("Mended.")]]) as app:
        session = (await app.create_session())["id"]
        assert texts(await app.prompt(session, "Go")) == ["Out."]
        refused = await app.prompt(session, "Again", expect=500)
        assert str(app.directory / "opencode.json") in refused["data"]["message"]
        (app.directory / "opencode.json").unlink()
        assert texts(await app.prompt(session, "Again")) == ["Mended."]
    assert tracebacks(caplog) == []
