"""On a server with users a project's configuration sends no key of the server anywhere, shows none, and sets no price of one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording_model import RecordingModel, recording_model
from running_app import RunningApp, make_workspace, running_app
from turns import call, say, until
from user_logins import user

SECRET = "5eCr3T-of-the-operator"
OWN = "sk-of-anna-alone"
LOGIN = (f"{SECRET}-name", f"{SECRET}-password")
SHOWING = (
    "/config",
    "/config/providers",
    "/provider",
    "/agent",
    "/mcp",
    "/api/provider",
    "/api/provider/shared",
    "/api/model",
    "/api/agent",
    "/api/integration",
    "/global/config",
)


@pytest.fixture
def theirs() -> Iterator[RecordingModel]:
    """What the operator has configured."""
    with recording_model() as model:
        yield model


@pytest.fixture
def mine() -> Iterator[RecordingModel]:
    """What a member runs."""
    with recording_model() as model:
        yield model


def operates(home: Path, config: dict[str, Any]) -> None:
    """The operator's own configuration."""
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(config))


def project(tmp_path: Path, config: dict[str, Any], place: str = "opencode.json") -> Path:
    """A member's project."""
    directory = make_workspace(tmp_path / "annas")
    (directory / place).parent.mkdir(exist_ok=True)
    (directory / place).write_text(json.dumps(config))
    return directory


async def ask(app: RunningApp, directory: Path, model: str = "shared/m", **fields: Any) -> dict[str, Any]:
    """The answer's facts, or the error of the request."""
    session = await app.post(f"/session?directory={directory}", {"title": "T"})
    provider_id, _, model_id = model.partition("/")
    body = {"model": {"providerID": provider_id, "modelID": model_id}, "parts": [{"type": "text", "text": "hi"}], **fields}
    answer = (await app.client.post(f"/session/{session['id']}/message?directory={directory}", json=body)).json()
    facts: dict[str, Any] = answer.get("info", answer)
    return facts


def entry(model: RecordingModel, **fields: Any) -> dict[str, Any]:
    return {**model.provider(), **fields}


def redirections(mine: RecordingModel) -> dict[str, dict[str, Any]]:
    """Ways in which a project may want a provider that is not its own to be reached elsewhere."""
    elsewhere = {"npm": "@ai-sdk/openai-compatible", "api": mine.url}
    return {
        "base url": {"options": {"baseURL": mine.url}},
        "all of it": entry(mine),
        "api": {"api": mine.url, "options": {"baseURL": ""}},
        "of a model": {"models": {"m": {"provider": elsewhere}}, "options": {"baseURL": ""}},
        "of an alias": {"models": {"alias": {"id": "m", "provider": elsewhere}, "m": {"provider": elsewhere}}},
        "another adapter": {"npm": "@ai-sdk/anthropic", "options": {"baseURL": mine.url}},
    }


WAYS = ("base url", "all of it", "api", "of a model", "of an alias", "another adapter")
PLACES = ("opencode.json", "opencode.jsonc", ".opencode/opencode.json")


class TestAddresses:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("secret", [{"apiKey": SECRET}, {"headers": {"X-Api": SECRET}}], ids=["key", "header"])
    async def test_a_shared_key_goes_to_the_operators_address_alone(
        self,
        tmp_path: Path,
        plain_environment: Path,
        theirs: RecordingModel,
        mine: RecordingModel,
        way: str,
        secret: dict[str, Any],
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(**secret)}})
        directory = project(tmp_path, {"provider": {"shared": redirections(mine)[way]}})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            for model in ("shared/m", "shared/alias"):
                await ask(anna, directory, model)
        assert theirs.saw(SECRET), "what the operator shares is used"
        assert not mine.received

    @pytest.mark.parametrize("way", WAYS)
    async def test_an_admin_who_prompts_in_a_members_directory_sends_nothing_there(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, mine: RecordingModel, way: str
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(apiKey=SECRET)}})
        directory = project(tmp_path, {"provider": {"shared": redirections(mine)[way]}}, ".opencode/opencode.jsonc")
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]), user(app, "adam", "admin") as adam:
            await ask(adam, directory)
        assert theirs.saw(SECRET) and not mine.received

    @pytest.mark.parametrize("kept", ["environment", "store"])
    @pytest.mark.parametrize("provider_id", ["openai", "groq", "company"])
    async def test_a_key_of_the_environment_or_the_store_goes_to_no_address_of_a_project(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: RecordingModel, kept: str, provider_id: str
    ) -> None:
        directory = project(tmp_path, {"provider": {provider_id: {**mine.provider(), "env": ["THE_KEY"]}}})
        if kept == "environment":
            for name in ("THE_KEY", "OPENAI_API_KEY", "GROQ_API_KEY"):
                monkeypatch.setenv(name, SECRET)
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            if kept == "store":
                async with user(app, "adam", "admin") as adam:
                    await adam.call("PUT", f"/auth/{provider_id}", {"type": "api", "key": SECRET})
            await ask(anna, directory, f"{provider_id}/m")
        assert not mine.saw(SECRET)

    @pytest.mark.parametrize(
        "stored",
        [
            {"type": "oauth", "refresh": "r", "access": "a", "expires": 0},
            {"type": "api", "key": ""},
            {"type": "api", "key": " "},
            {"type": "api", "key": OWN},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("provider_id", ["groq", "shared"])
    async def test_what_a_user_stores_in_place_of_a_key_takes_the_servers_nowhere(
        self,
        tmp_path: Path,
        plain_environment: Path,
        monkeypatch: pytest.MonkeyPatch,
        mine: RecordingModel,
        theirs: RecordingModel,
        stored: dict[str, Any],
        provider_id: str,
    ) -> None:
        monkeypatch.setenv("GROQ_API_KEY", SECRET)
        monkeypatch.setenv("SHARED_KEY", SECRET)
        operates(plain_environment, {"provider": {"shared": {**theirs.provider(), "env": ["SHARED_KEY"]}}})
        directory = project(tmp_path, {"provider": {provider_id: mine.provider()}})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            await anna.client.put(f"/auth/{provider_id}", json=stored)
            await ask(anna, directory, f"{provider_id}/m")
        assert not mine.saw(SECRET)

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("secret", [{"headers": {"X-Api": SECRET}}, {"headers": {"X-Team": f"of {SECRET}"}}])
    async def test_without_sharing_a_member_has_no_header_of_the_operators(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, mine: RecordingModel, place: str, secret: Any
    ) -> None:
        of_model = entry(theirs, models={"m": secret})
        operates(plain_environment, {"provider": {"shared": theirs.provider(**secret), "other": of_model}})
        redirected = {"options": {"baseURL": mine.url}}
        directory = project(tmp_path, {"provider": {"shared": redirected, "other": redirected}}, place)
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            assert set((await anna.get(f"/provider?directory={directory}"))["connected"]) == {"scripted"}
            for provider_id in ("shared", "other"):
                await ask(anna, directory, f"{provider_id}/m")
                await anna.call("PUT", f"/auth/{provider_id}", {"type": "api", "key": OWN})
                await ask(anna, directory, f"{provider_id}/m")
        assert not mine.saw(SECRET) and not theirs.saw(SECRET)
        assert mine.saw(OWN), "a key of her own goes where her project says"

    @pytest.mark.parametrize("query", ["key", "sig", "api-version"])
    async def test_without_sharing_a_member_has_no_address_with_a_query_of_the_operators(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, query: str
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(baseURL=f"{theirs.url}?{query}={SECRET}")}})
        directory = project(tmp_path, {})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            await ask(anna, directory)
            assert not theirs.received
            await anna.call("PUT", "/auth/shared", {"type": "api", "key": OWN})
            await ask(anna, directory)
        assert theirs.saw(OWN) and not theirs.saw(SECRET)

    async def test_what_the_operator_has_switched_off_stays_off(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel
    ) -> None:
        off = {"disabled_providers": ["shared"], "provider": {"shared": theirs.provider(apiKey=SECRET)}}
        operates(plain_environment, off)
        directory = project(tmp_path, {"disabled_providers": [], "enabled_providers": ["shared"]})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            await ask(anna, directory)
        assert not theirs.received


class TestVariables:
    @pytest.mark.parametrize("name", ["COMPANY_LOGIN", "HOME", "OPENCODE_SERVER_PASSWORD", "OPENSESSION_SECRET_KEY"])
    @pytest.mark.parametrize("role", ["member", "admin"])
    async def test_a_project_names_none_of_the_servers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: RecordingModel, name: str, role: str
    ) -> None:
        monkeypatch.setenv(name, SECRET)
        substituted = mine.provider(apiKey=f"{{env:{name}}}", headers={"X": f"{{env:{name}}}"})
        providers = {"named": {**mine.provider(), "env": [name]}, "substituted": substituted}
        directory = project(tmp_path, {"provider": providers})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", role, roots=[directory]) as anna:
            for provider_id in providers:
                await ask(anna, directory, f"{provider_id}/m")
            assert SECRET not in (await anna.client.get(f"/config?directory={directory}")).text
            assert name not in json.dumps((await anna.get(f"/provider?directory={directory}"))["all"])
        assert mine.received and not mine.saw(SECRET)

    @pytest.mark.parametrize(
        "name",
        ["OPENSESSION_SECRET_KEY", "opensession_secret_key", "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"],
    )
    async def test_the_servers_own_are_nobodys_key_without_users_either(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: RecordingModel, name: str
    ) -> None:
        for variable, value in {name: SECRET, "OPENCODE_SERVER_USERNAME": LOGIN[0], "OPENCODE_SERVER_PASSWORD": LOGIN[1]}.items():
            monkeypatch.setenv(variable, value)
        substituted = mine.provider(apiKey=f"{{env:{name}}}", headers={"X": f"{{env:{name}}}"})
        providers = {"named": {**mine.provider(), "env": [name]}, "substituted": substituted}
        directory = project(tmp_path, {"provider": providers})
        async with running_app(tmp_path, workspace=directory, auth=LOGIN) as app:
            for provider_id in providers:
                await ask(app, directory, f"{provider_id}/m")
            session = await app.create_session(title="T")
            ran = await app.post(f"/session/{session['id']}/shell", {"agent": "build", "command": "env"})
        assert mine.received and not mine.saw(SECRET)
        assert "PATH=" in json.dumps(ran) and SECRET not in json.dumps(ran)

    async def test_no_program_gets_the_servers_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OPENSESSION_SECRET_KEY", "opensession_secret_key", "OPENSESSION_ANY", "OPENCODE_SERVER_ANY"):
            monkeypatch.setenv(name, f"{SECRET}-{name}")
        env = {"type": "local", "command": ["sh", "-c", "env > mcp.txt"], "environment": {"GIVEN": "{env:OPENSESSION_ANY}"}}
        template = "It says: !`env > command.txt`"
        directory = project(tmp_path, {"mcp": {"env": env}, "command": {"look": {"template": template}}})
        files = [directory / f"{name}.txt" for name in ("mcp", "command", "shell", "terminal")]
        async with running_app(tmp_path, workspace=directory) as app:
            await app.get("/mcp")
            session = await app.create_session(title="T")
            await app.post(f"/session/{session['id']}/command", {"command": "look", "arguments": ""})
            await app.post(f"/session/{session['id']}/shell", {"agent": "build", "command": "env > shell.txt"})
            async with app.events() as events:
                await app.post("/pty", {"command": "/bin/sh", "args": ["-c", "env > terminal.txt"]})
                await events.until("pty.exited")
            told = [file.read_text() for file in files]
        assert all("PATH=" in text for text in told) and SECRET not in "".join(told)

    async def test_a_project_takes_no_variable_from_others_commands(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: RecordingModel
    ) -> None:
        monkeypatch.setenv("BUILD_MODE", "production")
        hiding = mine.provider(apiKey="production", headers={"X": "production"})
        directory = project(tmp_path, {"provider": {"hiding": {**hiding, "env": ["BUILD_MODE"]}}})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna, user(app, "bert") as bert:
            await anna.get(f"/provider?directory={directory}")
            session = await bert.create_session(title="T")
            ran = await bert.post(f"/session/{session['id']}/shell", {"agent": "build", "command": "env"})
        assert "BUILD_MODE=production" in json.dumps(ran)

    async def test_a_server_that_gets_users_while_it_runs_trusts_projects_no_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: RecordingModel
    ) -> None:
        monkeypatch.setenv("COMPANY_LOGIN", SECRET)
        directory = project(tmp_path, {"provider": {"named": {**mine.provider(), "env": ["COMPANY_LOGIN"]}}})
        async with running_app(tmp_path, workspace=directory, shared_keys=True) as app:
            await ask(app, directory, "named/m")
            assert mine.saw(SECRET), "without users the project is the operator's"
            mine.received.clear()
            async with user(app, "anna", roots=[directory]) as anna:
                await ask(anna, directory, "named/m")
        assert not mine.saw(SECRET)


class TestWhatIsShown:
    def config(self, theirs: RecordingModel) -> dict[str, Any]:
        options = {"headers": {"X-Api": SECRET, "X-Team": SECRET}, "masterKey": SECRET, "nested": {"bearer": SECRET}}
        model = {"headers": {"X-Odd": SECRET}, "options": {"accessKeyId": SECRET}, "variants": {"v": {"token": SECRET}}}
        login, query = theirs.url.replace("://", f"://user:p@{SECRET}@"), f"{theirs.url}?key={SECRET}&b=1"
        return {
            "provider": {
                "shared": {**theirs.provider(**options), "models": {"m": model}},
                "query": theirs.provider(baseURL=query),
                "login": theirs.provider(baseURL=login),
                "api": {**theirs.provider(baseURL=""), "api": query, "models": {"m": {"provider": {"api": query}}}},
            },
            "mcp": {
                "near": {
                    "type": "local",
                    "command": ["false", "--token", SECRET, f"--key={SECRET}"],
                    "environment": {"PLAIN": SECRET},
                },
                "far": {
                    "type": "remote",
                    "url": f"http://127.0.0.1:9/{SECRET}/mcp?token={SECRET}",
                    "headers": {"X-Odd": SECRET},
                    "oauth": False,
                },
                "login": {"type": "remote", "url": f"http://user:{SECRET}@127.0.0.1:9/mcp", "oauth": False},
                "off": {"type": "local", "command": ["sh", "-c", f"TOKEN={SECRET} run"], "enabled": False},
            },
            "formatter": {"f": {"command": ["f", SECRET], "environment": {"PLAIN": SECRET}}},
            "lsp": {"l": {"command": ["l", SECRET], "env": {"PLAIN": SECRET}, "extensions": [".l"]}},
            "agent": {"build": {"options": {"apiKey": SECRET}}},
            "instructions": [f"http://127.0.0.1:9/page?token={SECRET}"],
        }

    @pytest.mark.parametrize("role", ["member", "viewer"])
    async def test_nothing_secret_to_members(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, role: str
    ) -> None:
        operates(plain_environment, self.config(theirs))
        directory = project(tmp_path, {})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", role, roots=[directory]) as anna:
            for path in SHOWING:
                shown = (await anna.client.get(path, params={"directory": str(directory)})).text
                assert SECRET not in shown, path
            config = await anna.get(f"/config?directory={directory}")
        assert config["mcp"]["near"]["command"][0] == "false" and config["mcp"]["far"]["url"].startswith("http://127.0.0.1:9/")

    async def test_no_header_no_query_to_anybody(self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel) -> None:
        config = self.config(theirs)
        del config["mcp"], config["formatter"], config["lsp"]
        operates(plain_environment, config)
        async with running_app(tmp_path) as app:
            for path in SHOWING:
                assert SECRET not in (await app.client.get(path)).text, path
            assert "shared" in (await app.get("/config"))["provider"]

    async def test_who_runs_the_server_sees_the_programs_and_may_send_back_what_was_shown(
        self, tmp_path: Path, plain_environment: Path
    ) -> None:
        near = {"type": "local", "command": ["false", "--verbose"], "enabled": False, "environment": {"A": SECRET}}
        far = {"type": "remote", "url": f"http://127.0.0.1:9/mcp?token={SECRET}", "enabled": False}
        operates(plain_environment, {"mcp": {"near": near, "far": far}})
        async with running_app(tmp_path) as app, user(app, "anna"), user(app, "adam", "admin") as adam:
            shown = await adam.get("/global/config")
            assert shown["mcp"]["near"]["command"] == near["command"]
            await adam.call("PATCH", "/global/config", {**shown, "username": "me"})
        written = json.loads((plain_environment / ".config/opencode/opencode.json").read_text())
        assert written["mcp"] == {"near": near, "far": far}


class TestErrors:
    @pytest.mark.parametrize("npm", ["@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic"])
    async def test_a_provider_that_quotes_what_it_was_sent_tells_a_member_nothing(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, npm: str
    ) -> None:
        address = f"{theirs.url}?key={SECRET}&b=%20{SECRET}"
        headers = {"X-Odd": SECRET, "Authorization": f"Odd {SECRET}"}
        providers = {
            "query": {**theirs.provider(baseURL=address, apiKey=SECRET), "npm": npm},
            "api": {**theirs.provider(baseURL="", apiKey=SECRET), "npm": npm, "api": address},
            "headers": {**theirs.provider(headers=headers), "npm": npm, "models": {"m": {"headers": {"X-Other": SECRET}}}},
        }
        operates(plain_environment, {"provider": providers})
        directory = project(tmp_path, {})
        theirs.quotes = True
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            for provider_id in providers:
                told = json.dumps(await ask(anna, directory, f"{provider_id}/m"))
                assert "Incorrect" in told and SECRET not in told, provider_id
        assert theirs.saw(SECRET)


class TestMcp:
    async def test_a_project_takes_no_part_of_the_operators_server(
        self, tmp_path: Path, plain_environment: Path, mine: RecordingModel
    ) -> None:
        far = {"type": "remote", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Api": SECRET}, "oauth": False}
        near = {"type": "local", "command": ["false"], "environment": {"TOKEN": SECRET}}
        operates(plain_environment, {"mcp": {"far": far, "near": near}})
        told = tmp_path / "annas" / "told.txt"
        taken = {
            "far": {"type": "remote", "url": mine.url, "oauth": False},
            "near": {"type": "local", "command": ["sh", "-c", f"env > {told}"]},
        }
        directory = project(tmp_path, {"mcp": taken})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            await anna.get(f"/mcp?directory={directory}")
        assert mine.received and not mine.saw(SECRET)
        assert "PATH=" in told.read_text() and SECRET not in told.read_text()

    async def test_a_server_that_quotes_what_it_was_given_tells_nothing(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        headers = {"X-Odd": SECRET}
        theirs.quotes = True
        quoting = ["sh", "-c", 'echo "bad $*, $PLAIN" >&2; exit 1', "sh", "--token", SECRET, f"--x={SECRET}", f"Y={SECRET}"]
        servers = {
            "far": {"type": "remote", "url": f"{theirs.url}?token={SECRET}", "headers": headers, "oauth": False},
            "gone": {"type": "remote", "url": f"http://127.0.0.1:9/?token={SECRET}", "headers": headers, "oauth": False},
            "none": {"type": "remote", "url": f"ftp://user:{SECRET}@127.0.0.1:9/mcp?key={SECRET}", "oauth": False},
            "near": {"type": "local", "command": quoting, "environment": {"PLAIN": SECRET}},
        }
        operates(plain_environment, {"mcp": servers})
        async with running_app(tmp_path) as app, user(app, "anna") as anna:
            statuses = await anna.get("/mcp")
        assert theirs.saw(SECRET) and "bad" in statuses["near"]["error"]
        assert SECRET not in json.dumps(statuses) + caplog.text

    async def test_a_project_may_switch_it_off_and_its_own_works(self, tmp_path: Path, plain_environment: Path) -> None:
        operates(plain_environment, {"mcp": {"near": {"type": "local", "command": ["false"]}}})
        own = {"type": "local", "command": ["false"], "enabled": False}
        directory = project(tmp_path, {"mcp": {"near": {"enabled": False}, "own": own}})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            statuses = await anna.get(f"/mcp?directory={directory}")
        assert {name: status["status"] for name, status in statuses.items()} == {"near": "disabled", "own": "disabled"}


class TestLanguageServersAndFormatters:
    """What the operator's layers give a program goes to no program of the project's."""

    @pytest.mark.parametrize("kind", ["lsp", "formatter"])
    @pytest.mark.parametrize("way", ["by a command", "by a file"])
    async def test_a_project_takes_no_part_of_the_operators(
        self, tmp_path: Path, plain_environment: Path, kind: str, way: str
    ) -> None:
        variables = {"env" if kind == "lsp" else "environment": {"TOKEN": SECRET}}
        operates(plain_environment, {kind: {"near": {"command": ["near-program", "$FILE"], "extensions": [".x"], **variables}}})
        told = tmp_path / "annas" / "told.txt"
        command = ["sh", "-c", f"echo ran >> {told}; env >> {told}"]
        own = {kind: {"near": {"command": command, "extensions": [".x"]}}}
        directory = project(tmp_path, own if way == "by a command" else {})
        for folder in ("node_modules/.bin", ".venv/bin"):
            (directory / folder).mkdir(parents=True)
            (directory / folder / "near-program").write_text(f"#!/bin/sh\necho ran >> {told}; env >> {told}\n")
            (directory / folder / "near-program").chmod(0o755)
        turns = [[call("write", filePath="a.x", content="x")], [say()]]
        async with running_app(tmp_path, turns=turns) as app, user(app, "anna", roots=[directory]) as anna:
            session = await anna.post(f"/session?directory={directory}", {"title": "T"})
            body = {"parts": [{"type": "text", "text": "Go"}]}
            await anna.post(f"/session/{session['id']}/message?directory={directory}", body)
            assert (directory / "a.x").read_text() == "x"
            if way == "by a command":
                await until(lambda: told.exists() and "PATH=" in told.read_text())
        assert not told.exists() or SECRET not in told.read_text()


FREE = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
CREDIT = {"input": -1000, "output": -1000, "cache_read": -1000, "cache_write": -1000}


class TestPrices:
    @pytest.mark.parametrize(
        "said",
        [
            {"models": {"m": {"cost": FREE}}},
            {"models": {"m": {"cost": CREDIT}}},
            {"models": {"m": {"cost": {**CREDIT, "context_over_200k": CREDIT}}}},
            {"models": {"m": {"id": "m", "cost": FREE}, "alias": {"id": "m", "cost": FREE}}},
            {"models": {"alias": {"id": "m"}}},
            {"models": {"cheap": {"id": "m", "cost": FREE}, "alias": {"id": "cheap"}}},
            {"models": {"alias": {"options": {"model": "m"}}, "m": {"options": {"model": "dear"}}}},
            {"models": {"m": {"options": {"stream_options": {"include_usage": False}}}}},
        ],
        ids=str,
    )
    async def test_those_of_a_shared_model_are_the_operators(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, said: dict[str, Any]
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(apiKey=SECRET)}})
        agents = {"build": {"options": {"model": "dear", "stream_options": {"include_usage": False}}}}
        directory = project(tmp_path, {"small_model": "shared/m", "provider": {"shared": said}, "agent": agents})
        async with running_app(tmp_path, shared_keys=True) as app:
            async with user(app, "anna", roots=[directory], max_cost=1.0) as anna:
                for model in ("shared/alias", "shared/m", "shared/alias", "shared/m"):
                    await ask(anna, directory, model)
        assert len(theirs.received) == 1, "a call costs 1.10 dollars"
        assert theirs.bodies[0]["model"] == "m" and theirs.bodies[0]["stream_options"] == {"include_usage": True}

    @pytest.mark.parametrize(
        "usage",
        [
            {"prompt_tokens": 0, "completion_tokens": -10_000_000},
            {"prompt_tokens": -10_000_000, "completion_tokens": 0},
            {"prompt_tokens": 0, "completion_tokens": 0, "completion_tokens_details": {"reasoning_tokens": -10_000_000}},
            {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": -10_000_000}},
            {"prompt_tokens": 10**30, "completion_tokens": -(10**30)},
        ],
        ids=str,
    )
    async def test_what_a_provider_of_ones_own_reports_buys_nothing(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel, mine: RecordingModel, usage: dict[str, Any]
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(apiKey=SECRET)}})
        directory = project(tmp_path, {"provider": {"own": {**mine.provider(), "models": {"m": {"cost": CREDIT}}}}})
        mine.usage = usage
        async with running_app(tmp_path, shared_keys=True) as app:
            async with user(app, "anna", roots=[directory], max_cost=1.0, max_tokens=1000) as anna:
                await anna.call("PUT", "/auth/own", {"type": "api", "key": OWN})
                await ask(anna, directory, "own/m")
                for model in ("shared/m", "own/m", "shared/m"):
                    await ask(anna, directory, model)
                total = (await anna.get("/usage"))["total"]
        assert mine.received and len(theirs.received) <= 1
        assert total["cost"] >= 0 and min(total["tokens"]["input"], total["tokens"]["output"], total["tokens"]["reasoning"]) >= 0
        assert min(total["tokens"]["cache"].values()) >= 0

    async def test_no_price_is_below_nothing(self, tmp_path: Path, mine: RecordingModel) -> None:
        models = {"m": {"cost": {**CREDIT, "context_over_200k": CREDIT}}}
        directory = project(tmp_path, {"provider": {"own": {**mine.provider(), "models": models}}})
        async with running_app(tmp_path, workspace=directory) as app:
            answer = await ask(app, directory, "own/m")
            [shown] = [one for one in (await app.get("/config/providers"))["providers"] if one["id"] == "own"]
        assert answer["cost"] == 0 and "-1000" not in json.dumps(shown["models"]["m"]["cost"])


class TestHonestUse:
    async def test_a_members_own_provider_with_a_key_of_theirs(self, tmp_path: Path, mine: RecordingModel) -> None:
        headers = {"X-Title": "Ours"}
        model = {"name": "M", "headers": {"X-Of-Model": "yes"}, "options": {"reasoningEffort": "low"}}
        own = {**mine.provider(headers=headers), "models": {"m": model}}
        directory = project(tmp_path, {"model": "own/m", "provider": {"own": own}})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            await anna.call("PUT", "/auth/own", {"type": "api", "key": OWN})
            answer = await ask(anna, directory, "own/m")
        assert "error" not in answer
        assert all(mine.saw(text) for text in (OWN, "x-title: Ours", "x-of-model: yes", '"reasoning_effort":"low"'))

    async def test_a_key_of_ones_own_for_a_provider_of_the_operators(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(apiKey=SECRET)}})
        directory = project(tmp_path, {})
        async with running_app(tmp_path, shared_keys=True) as app, user(app, "anna", roots=[directory]) as anna:
            await anna.call("PUT", "/auth/shared", {"type": "api", "key": OWN})
            assert "error" not in await ask(anna, directory)
        assert theirs.saw(OWN) and not theirs.saw(SECRET)

    async def test_a_provider_without_a_key(self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel) -> None:
        operates(plain_environment, {"provider": {"open": theirs.provider()}})
        directory = project(tmp_path, {})
        async with running_app(tmp_path) as app, user(app, "anna", roots=[directory]) as anna:
            assert "error" not in await ask(anna, directory, "open/m")

    async def test_a_project_describes_a_shared_model_and_names_it_anew(
        self, tmp_path: Path, plain_environment: Path, theirs: RecordingModel
    ) -> None:
        operates(plain_environment, {"provider": {"shared": theirs.provider(apiKey=SECRET)}})
        limit = {"context": 100_000, "output": 77}
        directory = project(tmp_path, {"provider": {"shared": {"models": {"mine": {"id": "m", "limit": limit}}}}})
        async with running_app(tmp_path, shared_keys=True) as app:
            async with user(app, "anna", roots=[directory], max_cost=100.0) as anna:
                answer = await ask(anna, directory, "shared/mine")
        assert answer["cost"] == pytest.approx(1.1) and theirs.bodies[0]["max_tokens"] == 77

    async def test_without_users_a_project_says_all(
        self,
        tmp_path: Path,
        plain_environment: Path,
        monkeypatch: pytest.MonkeyPatch,
        theirs: RecordingModel,
        mine: RecordingModel,
    ) -> None:
        monkeypatch.setenv("COMPANY_LOGIN", OWN)
        operates(plain_environment, {"provider": {"shared": theirs.provider()}})
        changed = {"options": {"baseURL": mine.url}, "env": ["COMPANY_LOGIN"], "models": {"m": {"cost": {**FREE, "input": 2000}}}}
        directory = project(tmp_path, {"provider": {"shared": changed}})
        async with running_app(tmp_path, workspace=directory) as app:
            answer = await ask(app, directory)
        assert mine.saw(OWN) and not theirs.received and answer["cost"] == pytest.approx(2.0)
