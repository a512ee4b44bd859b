"""A configuration file that is written wrongly while the server works, or while it is down: what runs goes on, what is asked anew
gets an error that names the file, and the log has no traceback for a typing error."""

from pathlib import Path

from killable import Servers
from turns import assert_finished, bash, say

ASKED = {"permission": {"bash": "ask"}}


async def test_a_server_that_starts_with_a_broken_configuration_answers_what_was_left_with_the_error(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.configure(ASKED)
    servers.play([[bash("ls")], [say("Done.")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, path="prompt_async")
        await client.condition("/permission", bool)
    (servers.workspace / "opencode.json").write_text("{")
    async with servers.start() as client:
        await client.idle()
        messages = await client.get(f"/session/{session}/message")
        assert_finished(messages)
        assert "opencode.json" in messages[-1]["info"]["error"]["data"]["message"]
        assert (await client.get("/permission")) == []
        servers.configure({})
        assert (await client.prompt(session))["info"].get("error") is None
    assert "Traceback" not in servers.log
    assert [line for line in servers.log.splitlines() if "opencode.json:1" in line] != []
