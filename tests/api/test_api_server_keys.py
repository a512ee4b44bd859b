"""On a server with users a project's configuration sends no key of the server anywhere, shows none, and sets no price of one."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from recording_model import RecordingModel, recording_model
from running_app import RunningApp, Turns, make_workspace, running_app
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


class Desk:
    """`theirs`: the model that the operator has configured; `mine`: one that a member runs; `directory`: the member's project."""

    def __init__(self, base: Path, home: Path, theirs: RecordingModel, mine: RecordingModel) -> None:
        self.base, self.theirs, self.mine = base, theirs, mine
        self.directory = make_workspace(base / "annas")
        self._operators = home / ".config" / "opencode" / "opencode.json"

    def operates(self, **config: Any) -> None:
        """The operator's own configuration."""
        self._operators.parent.mkdir(parents=True, exist_ok=True)
        self._operators.write_text(json.dumps(config))

    def operators(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._operators.read_text())
        return found

    def shares(self, **options: Any) -> None:
        """The operator's configuration is one provider, with a key unless its options are others."""
        self.operates(provider={"shared": self.theirs.provider(**(options or {"apiKey": SECRET}))})

    def project(self, place: str = "opencode.json", **config: Any) -> None:
        """The member's configuration."""
        (self.directory / place).parent.mkdir(exist_ok=True)
        (self.directory / place).write_text(json.dumps(config))

    @asynccontextmanager
    async def anna(
        self, role: str = "member", *, shared: bool | None = True, turns: Turns = (), **limits: Any
    ) -> AsyncIterator[RunningApp]:
        """A server as she sees it, whose keys are `shared` with her."""
        settings = {} if shared is None else {"shared_keys": shared}
        async with running_app(self.base, turns=turns, **settings) as app:
            async with user(app, "anna", role, roots=[self.directory], **limits) as anna:
                yield anna

    @asynccontextmanager
    async def alone(self, **settings: Any) -> AsyncIterator[RunningApp]:
        """A server without users that works in the project."""
        async with running_app(self.base, workspace=self.directory, **settings) as app:
            yield app

    async def ask(self, app: RunningApp, model: str = "shared/m") -> dict[str, Any]:
        """The answer's facts, or the error of the request."""
        where = f"directory={self.directory}"
        session = await app.post(f"/session?{where}", {"title": "T"})
        provider_id, _, model_id = model.partition("/")
        body = {"model": {"providerID": provider_id, "modelID": model_id}, "parts": [{"type": "text", "text": "hi"}]}
        answer = (await app.client.post(f"/session/{session['id']}/message?{where}", json=body)).json()
        facts: dict[str, Any] = answer.get("info", answer)
        return facts

    def named_variables(self, name: str) -> dict[str, Any]:
        """Providers of the project, each with a way to have a variable of the server."""
        substituted = self.mine.provider(apiKey=f"{{env:{name}}}", headers={"X": f"{{env:{name}}}"})
        return {"named": {**self.mine.provider(), "env": [name]}, "substituted": substituted}


@pytest.fixture
def desk(tmp_path: Path, plain_environment: Path) -> Iterator[Desk]:
    with recording_model() as theirs, recording_model() as mine:
        yield Desk(tmp_path, plain_environment, theirs, mine)


async def env_of(app: RunningApp) -> str:
    """What a command of the user prints of its environment."""
    session = await app.create_session(title="T")
    ran = json.dumps(await app.post(f"/session/{session['id']}/shell", {"agent": "build", "command": "env"}))
    assert "PATH=" in ran
    return ran


def redirections(mine: RecordingModel) -> dict[str, dict[str, Any]]:
    """Ways in which a project may want a provider that is not its own to be reached elsewhere."""
    elsewhere = {"npm": "@ai-sdk/openai-compatible", "api": mine.url}
    return {
        "base url": {"options": {"baseURL": mine.url}},
        "all of it": mine.provider(),
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
    async def test_a_shared_key_goes_to_the_operators_address_alone(self, desk: Desk, way: str, secret: dict[str, Any]) -> None:
        desk.shares(**secret)
        desk.project(provider={"shared": redirections(desk.mine)[way]})
        async with desk.anna() as anna:
            for model in ("shared/m", "shared/alias"):
                await desk.ask(anna, model)
        assert desk.theirs.saw(SECRET), "what the operator shares is used"
        assert not desk.mine.received

    @pytest.mark.parametrize("way", WAYS)
    async def test_an_admin_who_prompts_in_a_members_directory_sends_nothing_there(self, desk: Desk, way: str) -> None:
        desk.shares()
        desk.project(".opencode/opencode.jsonc", provider={"shared": redirections(desk.mine)[way]})
        async with desk.anna(shared=None) as anna, user(anna, "adam", "admin") as adam:
            await desk.ask(adam)
        assert desk.theirs.saw(SECRET) and not desk.mine.received

    @pytest.mark.parametrize("kept", ["environment", "store"])
    async def test_a_key_of_the_environment_or_the_store_goes_to_no_address_of_a_project(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, kept: str
    ) -> None:
        providers = ("openai", "groq", "company")
        desk.project(provider={name: {**desk.mine.provider(), "env": ["THE_KEY"]} for name in providers})
        if kept == "environment":
            for name in ("THE_KEY", "OPENAI_API_KEY", "GROQ_API_KEY"):
                monkeypatch.setenv(name, SECRET)
        async with desk.anna() as anna, user(anna, "adam", "admin") as adam:
            for provider_id in providers:
                if kept == "store":
                    await adam.call("PUT", f"/auth/{provider_id}", {"type": "api", "key": SECRET})
                await desk.ask(anna, f"{provider_id}/m")
        assert not desk.mine.saw(SECRET)

    @pytest.mark.parametrize("provider_id", ["groq", "shared"])
    async def test_what_a_user_stores_in_place_of_a_key_takes_the_servers_nowhere(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, provider_id: str
    ) -> None:
        monkeypatch.setenv("GROQ_API_KEY", SECRET)
        monkeypatch.setenv("SHARED_KEY", SECRET)
        desk.operates(provider={"shared": {**desk.theirs.provider(), "env": ["SHARED_KEY"]}})
        desk.project(provider={provider_id: desk.mine.provider()})
        async with desk.anna() as anna:
            for stored in (
                {"type": "oauth", "refresh": "r", "access": "a", "expires": 0},
                *({"type": "api", "key": key} for key in ("", " ", OWN)),
            ):
                await anna.client.delete(f"/auth/{provider_id}")
                await anna.client.put(f"/auth/{provider_id}", json=stored)
                await desk.ask(anna, f"{provider_id}/m")
        assert not desk.mine.saw(SECRET)

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("secret", [{"headers": {"X-Api": SECRET}}, {"headers": {"X-Team": f"of {SECRET}"}}])
    async def test_without_sharing_a_member_has_no_header_of_the_operators(self, desk: Desk, place: str, secret: Any) -> None:
        of_model = {**desk.theirs.provider(), "models": {"m": secret}}
        desk.operates(provider={"shared": desk.theirs.provider(**secret), "other": of_model})
        redirected = {"options": {"baseURL": desk.mine.url}}
        desk.project(place, provider={"shared": redirected, "other": redirected})
        async with desk.anna(shared=None) as anna:
            assert set((await anna.get(f"/provider?directory={desk.directory}"))["connected"]) == {"scripted"}
            for provider_id in ("shared", "other"):
                await desk.ask(anna, f"{provider_id}/m")
                await anna.call("PUT", f"/auth/{provider_id}", {"type": "api", "key": OWN})
                await desk.ask(anna, f"{provider_id}/m")
        assert not desk.mine.saw(SECRET) and not desk.theirs.saw(SECRET)
        assert desk.mine.saw(OWN), "a key of her own goes where her project says"

    @pytest.mark.parametrize("query", ["key", "sig", "api-version"])
    async def test_without_sharing_a_member_has_no_address_with_a_query_of_the_operators(self, desk: Desk, query: str) -> None:
        desk.shares(baseURL=f"{desk.theirs.url}?{query}={SECRET}")
        async with desk.anna(shared=None) as anna:
            await desk.ask(anna)
            assert not desk.theirs.received
            await anna.call("PUT", "/auth/shared", {"type": "api", "key": OWN})
            await desk.ask(anna)
        assert desk.theirs.saw(OWN) and not desk.theirs.saw(SECRET)

    async def test_what_the_operator_has_switched_off_stays_off(self, desk: Desk) -> None:
        desk.operates(disabled_providers=["shared"], provider={"shared": desk.theirs.provider(apiKey=SECRET)})
        desk.project(disabled_providers=[], enabled_providers=["shared"])
        async with desk.anna() as anna:
            await desk.ask(anna)
        assert not desk.theirs.received


class TestVariables:
    @pytest.mark.parametrize("name", ["COMPANY_LOGIN", "HOME", "OPENCODE_SERVER_PASSWORD", "OPENSESSION_SECRET_KEY"])
    @pytest.mark.parametrize("role", ["member", "admin"])
    async def test_a_project_names_none_of_the_servers(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, role: str
    ) -> None:
        monkeypatch.setenv(name, SECRET)
        desk.project(provider=desk.named_variables(name))
        async with desk.anna(role) as anna:
            for provider_id in ("named", "substituted"):
                await desk.ask(anna, f"{provider_id}/m")
            assert SECRET not in (await anna.client.get(f"/config?directory={desk.directory}")).text
            assert name not in json.dumps((await anna.get(f"/provider?directory={desk.directory}"))["all"])
        assert desk.mine.received and not desk.mine.saw(SECRET)

    @pytest.mark.parametrize(
        "name",
        ["OPENSESSION_SECRET_KEY", "opensession_secret_key", "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"],
    )
    async def test_the_servers_own_are_nobodys_key_without_users_either(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        for variable, value in {name: SECRET, "OPENCODE_SERVER_USERNAME": LOGIN[0], "OPENCODE_SERVER_PASSWORD": LOGIN[1]}.items():
            monkeypatch.setenv(variable, value)
        desk.project(provider=desk.named_variables(name))
        async with desk.alone(auth=LOGIN) as app:
            for provider_id in ("named", "substituted"):
                await desk.ask(app, f"{provider_id}/m")
            assert SECRET not in await env_of(app)
        assert desk.mine.received and not desk.mine.saw(SECRET)

    async def test_no_program_gets_the_servers_own(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OPENSESSION_SECRET_KEY", "opensession_secret_key", "OPENSESSION_ANY", "OPENCODE_SERVER_ANY"):
            monkeypatch.setenv(name, f"{SECRET}-{name}")
        env = {"type": "local", "command": ["sh", "-c", "env > mcp.txt"], "environment": {"GIVEN": "{env:OPENSESSION_ANY}"}}
        desk.project(mcp={"env": env}, command={"look": {"template": "It says: !`env > command.txt`"}})
        async with desk.alone() as app:
            await app.get("/mcp")
            session = await app.create_session(title="T")
            await app.post(f"/session/{session['id']}/command", {"command": "look", "arguments": ""})
            await app.post(f"/session/{session['id']}/shell", {"agent": "build", "command": "env > shell.txt"})
            async with app.events() as events:
                await app.post("/pty", {"command": "/bin/sh", "args": ["-c", "env > terminal.txt"]})
                await events.until("pty.exited")
            told = [(desk.directory / f"{name}.txt").read_text() for name in ("mcp", "command", "shell", "terminal")]
        assert all("PATH=" in text for text in told) and SECRET not in "".join(told)

    async def test_a_project_takes_no_variable_from_others_commands(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUILD_MODE", "production")
        hiding = desk.mine.provider(apiKey="production", headers={"X": "production"})
        desk.project(provider={"hiding": {**hiding, "env": ["BUILD_MODE"]}})
        async with desk.anna(shared=None) as anna, user(anna, "bert") as bert:
            await anna.get(f"/provider?directory={desk.directory}")
            assert "BUILD_MODE=production" in await env_of(bert)

    async def test_a_server_that_gets_users_while_it_runs_trusts_projects_no_more(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COMPANY_LOGIN", SECRET)
        desk.project(provider={"named": {**desk.mine.provider(), "env": ["COMPANY_LOGIN"]}})
        async with desk.alone(shared_keys=True) as app:
            await desk.ask(app, "named/m")
            assert desk.mine.saw(SECRET), "without users the project is the operator's"
            desk.mine.received.clear()
            async with user(app, "anna", roots=[desk.directory]) as anna:
                await desk.ask(anna, "named/m")
        assert not desk.mine.saw(SECRET)


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
    async def test_nothing_secret_to_members(self, desk: Desk, role: str) -> None:
        desk.operates(**self.config(desk.theirs))
        async with desk.anna(role) as anna:
            for path in SHOWING:
                shown = (await anna.client.get(path, params={"directory": str(desk.directory)})).text
                assert SECRET not in shown, path
            config = await anna.get(f"/config?directory={desk.directory}")
        assert config["mcp"]["near"]["command"][0] == "false" and config["mcp"]["far"]["url"].startswith("http://127.0.0.1:9/")

    async def test_no_header_no_query_to_anybody(self, desk: Desk) -> None:
        config = self.config(desk.theirs)
        del config["mcp"], config["formatter"], config["lsp"]
        desk.operates(**config)
        async with running_app(desk.base) as app:
            for path in SHOWING:
                assert SECRET not in (await app.client.get(path)).text, path
            assert "shared" in (await app.get("/config"))["provider"]

    async def test_who_runs_the_server_sees_the_programs_and_may_send_back_what_was_shown(self, desk: Desk) -> None:
        near = {"type": "local", "command": ["false", "--verbose"], "enabled": False, "environment": {"A": SECRET}}
        far = {"type": "remote", "url": f"http://127.0.0.1:9/mcp?token={SECRET}", "enabled": False}
        desk.operates(mcp={"near": near, "far": far})
        async with desk.anna(shared=None) as anna, user(anna, "adam", "admin") as adam:
            shown = await adam.get("/global/config")
            assert shown["mcp"]["near"]["command"] == near["command"]
            await adam.call("PATCH", "/global/config", {**shown, "username": "me"})
        assert desk.operators()["mcp"] == {"near": near, "far": far}


class TestErrors:
    @pytest.mark.parametrize("npm", ["@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic"])
    async def test_a_provider_that_quotes_what_it_was_sent_tells_a_member_nothing(self, desk: Desk, npm: str) -> None:
        theirs = desk.theirs
        address = f"{theirs.url}?key={SECRET}&b=%20{SECRET}"
        headers = {"X-Odd": SECRET, "Authorization": f"Odd {SECRET}"}
        providers = {
            "query": {**theirs.provider(baseURL=address, apiKey=SECRET), "npm": npm},
            "api": {**theirs.provider(baseURL="", apiKey=SECRET), "npm": npm, "api": address},
            "headers": {**theirs.provider(headers=headers), "npm": npm, "models": {"m": {"headers": {"X-Other": SECRET}}}},
        }
        desk.operates(provider=providers)
        theirs.quotes = True
        async with desk.anna() as anna:
            for provider_id in providers:
                told = json.dumps(await desk.ask(anna, f"{provider_id}/m"))
                assert "Incorrect" in told and SECRET not in told, provider_id
        assert theirs.saw(SECRET)


class TestMcp:
    async def test_a_project_takes_no_part_of_the_operators_server(self, desk: Desk) -> None:
        far = {"type": "remote", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Api": SECRET}, "oauth": False}
        near = {"type": "local", "command": ["false"], "environment": {"TOKEN": SECRET}}
        desk.operates(mcp={"far": far, "near": near})
        told = desk.directory / "told.txt"
        taken = {
            "far": {"type": "remote", "url": desk.mine.url, "oauth": False},
            "near": {"type": "local", "command": ["sh", "-c", f"env > {told}"]},
        }
        desk.project(mcp=taken)
        async with desk.anna(shared=None) as anna:
            await anna.get(f"/mcp?directory={desk.directory}")
        assert desk.mine.received and not desk.mine.saw(SECRET)
        assert "PATH=" in told.read_text() and SECRET not in told.read_text()

    async def test_a_server_that_quotes_what_it_was_given_tells_nothing(
        self, desk: Desk, caplog: pytest.LogCaptureFixture
    ) -> None:
        theirs, headers = desk.theirs, {"X-Odd": SECRET}
        theirs.quotes = True
        quoting = ["sh", "-c", 'echo "bad $*, $PLAIN" >&2; exit 1', "sh", "--token", SECRET, f"--x={SECRET}", f"Y={SECRET}"]
        servers = {
            "far": {"type": "remote", "url": f"{theirs.url}?token={SECRET}", "headers": headers, "oauth": False},
            "gone": {"type": "remote", "url": f"http://127.0.0.1:9/?token={SECRET}", "headers": headers, "oauth": False},
            "none": {"type": "remote", "url": f"ftp://user:{SECRET}@127.0.0.1:9/mcp?key={SECRET}", "oauth": False},
            "near": {"type": "local", "command": quoting, "environment": {"PLAIN": SECRET}},
        }
        desk.operates(mcp=servers)
        async with running_app(desk.base) as app, user(app, "anna") as anna:
            statuses = await anna.get("/mcp")
        assert theirs.saw(SECRET) and "bad" in statuses["near"]["error"]
        assert SECRET not in json.dumps(statuses) + caplog.text

    async def test_a_project_may_switch_it_off_and_its_own_works(self, desk: Desk) -> None:
        desk.operates(mcp={"near": {"type": "local", "command": ["false"]}})
        own = {"type": "local", "command": ["false"], "enabled": False}
        desk.project(mcp={"near": {"enabled": False}, "own": own})
        async with desk.anna(shared=None) as anna:
            statuses = await anna.get(f"/mcp?directory={desk.directory}")
        assert {name: status["status"] for name, status in statuses.items()} == {"near": "disabled", "own": "disabled"}


class TestLanguageServersAndFormatters:
    """What the operator's layers give a program goes to no program of the project's."""

    @pytest.mark.parametrize("kind", ["lsp", "formatter"])
    @pytest.mark.parametrize("way", ["by a command", "by a file"])
    async def test_a_project_takes_no_part_of_the_operators(self, desk: Desk, kind: str, way: str) -> None:
        variables = {"env" if kind == "lsp" else "environment": {"TOKEN": SECRET}}
        desk.operates(**{kind: {"near": {"command": ["near-program", "$FILE"], "extensions": [".x"], **variables}}})
        directory, told = desk.directory, desk.directory / "told.txt"
        command = ["sh", "-c", f"echo ran >> {told}; env >> {told}"]
        own = {kind: {"near": {"command": command, "extensions": [".x"]}}}
        desk.project(**(own if way == "by a command" else {}))
        for folder in ("node_modules/.bin", ".venv/bin"):
            (directory / folder).mkdir(parents=True)
            (directory / folder / "near-program").write_text(f"#!/bin/sh\necho ran >> {told}; env >> {told}\n")
            (directory / folder / "near-program").chmod(0o755)
        turns = [[call("write", filePath="a.x", content="x")], [say()]]
        async with desk.anna(shared=None, turns=turns) as anna:
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
    async def test_those_of_a_shared_model_are_the_operators(self, desk: Desk, said: dict[str, Any]) -> None:
        desk.shares()
        agents = {"build": {"options": {"model": "dear", "stream_options": {"include_usage": False}}}}
        desk.project(small_model="shared/m", provider={"shared": said}, agent=agents)
        async with desk.anna(max_cost=1.0) as anna:
            for model in ("shared/alias", "shared/m", "shared/alias", "shared/m"):
                await desk.ask(anna, model)
        [body] = desk.theirs.bodies
        assert len(desk.theirs.received) == 1, "a call costs 1.10 dollars"
        assert body["model"] == "m" and body["stream_options"] == {"include_usage": True}

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
    async def test_what_a_provider_of_ones_own_reports_buys_nothing(self, desk: Desk, usage: dict[str, Any]) -> None:
        desk.shares()
        desk.project(provider={"own": {**desk.mine.provider(), "models": {"m": {"cost": CREDIT}}}})
        desk.mine.usage = usage
        async with desk.anna(max_cost=1.0, max_tokens=1000) as anna:
            await anna.call("PUT", "/auth/own", {"type": "api", "key": OWN})
            for model in ("own/m", "shared/m", "own/m", "shared/m"):
                await desk.ask(anna, model)
            total = (await anna.get("/usage"))["total"]
        assert desk.mine.received and len(desk.theirs.received) <= 1
        assert total["cost"] >= 0 and min(total["tokens"]["input"], total["tokens"]["output"], total["tokens"]["reasoning"]) >= 0
        assert min(total["tokens"]["cache"].values()) >= 0

    async def test_no_price_is_below_nothing(self, desk: Desk) -> None:
        models = {"m": {"cost": {**CREDIT, "context_over_200k": CREDIT}}}
        desk.project(provider={"own": {**desk.mine.provider(), "models": models}})
        async with desk.alone() as app:
            answer = await desk.ask(app, "own/m")
            [shown] = [one for one in (await app.get("/config/providers"))["providers"] if one["id"] == "own"]
        assert answer["cost"] == 0 and "-1000" not in json.dumps(shown["models"]["m"]["cost"])


class TestHonestUse:
    async def test_a_members_own_provider_with_a_key_of_theirs(self, desk: Desk) -> None:
        model = {"name": "M", "headers": {"X-Of-Model": "yes"}, "options": {"reasoningEffort": "low"}}
        own = {**desk.mine.provider(headers={"X-Title": "Ours"}), "models": {"m": model}}
        desk.project(model="own/m", provider={"own": own})
        async with desk.anna(shared=None) as anna:
            await anna.call("PUT", "/auth/own", {"type": "api", "key": OWN})
            assert "error" not in await desk.ask(anna, "own/m")
        assert all(desk.mine.saw(text) for text in (OWN, "x-title: Ours", "x-of-model: yes", '"reasoning_effort":"low"'))

    async def test_a_key_of_ones_own_for_a_provider_of_the_operators_and_one_without_a_key(self, desk: Desk) -> None:
        desk.operates(provider={"shared": desk.theirs.provider(apiKey=SECRET), "open": desk.theirs.provider()})
        async with desk.anna() as anna:
            await anna.call("PUT", "/auth/shared", {"type": "api", "key": OWN})
            for model in ("shared/m", "open/m"):
                assert "error" not in await desk.ask(anna, model)
        assert desk.theirs.saw(OWN) and not desk.theirs.saw(SECRET)

    async def test_a_project_describes_a_shared_model_and_names_it_anew(self, desk: Desk) -> None:
        desk.shares()
        desk.project(provider={"shared": {"models": {"mine": {"id": "m", "limit": {"context": 100_000, "output": 77}}}}})
        async with desk.anna(max_cost=100.0) as anna:
            answer = await desk.ask(anna, "shared/mine")
        assert answer["cost"] == pytest.approx(1.1) and desk.theirs.bodies[0]["max_tokens"] == 77

    async def test_without_users_a_project_says_all(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMPANY_LOGIN", OWN)
        desk.operates(provider={"shared": desk.theirs.provider()})
        costs = {"m": {"cost": {**FREE, "input": 2000}}}
        desk.project(provider={"shared": {"options": {"baseURL": desk.mine.url}, "env": ["COMPANY_LOGIN"], "models": costs}})
        async with desk.alone() as app:
            answer = await desk.ask(app)
        assert desk.mine.saw(OWN) and not desk.theirs.received and answer["cost"] == pytest.approx(2.0)
