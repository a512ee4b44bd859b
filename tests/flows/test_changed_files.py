"""Files that shape an agent are looked at again while the server runs: what changed holds
from the next request on, without a restart."""

import json
from pathlib import Path
from typing import Any

from git_files import put_file
from running_app import RunningApp, running_app
from running_server import new_workspace
from turns import configured, priced, requests, say, talking

AGENT = "---\ndescription: reviews\nmode: primary\n---\n{prompt}"
COMMAND = "---\ndescription: greets\n---\nSay hello to $ARGUMENTS{end}"
SKILL = "---\nname: {name}\ndescription: about {name}\n---\nDo it."


async def shaped(app: RunningApp) -> dict[str, Any]:
    agents, commands, skills = await app.get("/agent"), await app.get("/command"), await app.get("/skill")
    return {
        "theme": (await app.get("/config")).get("theme"),
        "agent": next((agent["prompt"] for agent in agents if agent["name"] == "critic"), None),
        "command": next((command["template"] for command in commands if command["name"] == "greet"), None),
        "skills": sorted(skill["name"] for skill in skills),
    }


async def test_config_agents_commands_and_skills_that_come_change_and_go(tmp_path: Path) -> None:
    directory = configured(tmp_path, priced())
    own = directory / ".opencode"
    async with running_app(tmp_path, workspace=directory) as app:
        assert await shaped(app) == {"theme": None, "agent": None, "command": None, "skills": []}
        put_file(directory / "opencode.json", json.dumps({**priced(), "theme": "dark"}))
        put_file(own / "agent" / "critic.md", AGENT.format(prompt="Be strict."))
        put_file(own / "command" / "greet.md", COMMAND.format(end=""))
        put_file(own / "skill" / "one" / "SKILL.md", SKILL.format(name="one"))
        first = {"theme": "dark", "agent": "Be strict.", "command": "Say hello to $ARGUMENTS", "skills": ["one"]}
        assert await shaped(app) == first
        put_file(own / "agent" / "critic.md", AGENT.format(prompt="Be gentle."))
        put_file(own / "command" / "greet.md", COMMAND.format(end=", twice"))
        put_file(own / "skill" / "two" / "SKILL.md", SKILL.format(name="two"))
        then = {"theme": "dark", "agent": "Be gentle.", "command": "Say hello to $ARGUMENTS, twice", "skills": ["one", "two"]}
        assert await shaped(app) == then
        app.provider.add([say("Hm.")])
        session = (await app.create_session())["id"]
        await app.prompt(session, "What do you think?", agent="critic")
        assert requests(app)[0].system[0] == "Be gentle."
        (own / "agent" / "critic.md").unlink()
        assert await shaped(app) == {**then, "agent": None}


async def test_a_file_that_breaks_stops_its_directory_alone_until_it_is_repaired(tmp_path: Path) -> None:
    directory, other = configured(tmp_path, priced()), new_workspace(tmp_path / "other")

    async def status(place: Path) -> int:
        return (await app.client.get("/config", params={"directory": str(place)})).status_code

    async with talking(tmp_path, workspace=directory, roots=str(other)) as (app, session):
        put_file(directory / "opencode.json", '{\n  "model": "acme/big",\n  "modle": 1\n}')
        assert await status(directory) == 500
        refused = await app.prompt(session, "Hi", expect=500)
        assert refused["name"] == "ConfigInvalidError"
        assert refused["data"]["line"] == 3 and refused["data"]["path"] == str(directory / "opencode.json")
        assert await status(other) == 200
        put_file(directory / "opencode.json", json.dumps(priced()))
        assert await status(directory) == 200
        app.provider.add([say("Back.")])
        assert (await app.prompt(session, "Hi"))["info"]["finish"] == "stop"
