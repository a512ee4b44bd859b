"""On a server with users a project's configuration sends no key of the server anywhere, shows none, and sets no price of one."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from recording_model import RecordingModel, recording_model
from running_app import RunningApp, Turns, make_workspace, running_app, text_part
from turns import call, say, until
from user_logins import user

SECRET = "5eCr3T-of-the-operator"
OWN = "sk-of-anna-alone"
KEY = {"type": "api", "key": OWN}
LOGIN = (f"{SECRET}-name", f"{SECRET}-password")
SHOWING = ("config", "config/providers", "provider", "agent", "mcp", "global/config")
SHOWING += ("api/provider", "api/provider/shared", "api/model", "api/agent", "api/integration")


class Desk:
    """`theirs`: the model that the operator has configured; `mine`: one that a member runs; `directory`: the member's project."""

    def __init__(self, base: Path, home: Path, theirs: RecordingModel, mine: RecordingModel) -> None:
        self.base, self.theirs, self.mine = base, theirs, mine
        self.directory = make_workspace(base / "annas")
        self.query = {"directory": str(self.directory)}
        self.operators = home / ".config" / "opencode" / "opencode.json"
        self.operators.parent.mkdir(parents=True)

    def operates(self, **config: Any) -> None:
        """The operator's own configuration."""
        self.operators.write_text(json.dumps(config))

    def shares(self, **options: Any) -> None:
        """The operator's configuration is one provider, with a key unless its options are others."""
        self.operates(provider={"shared": self.theirs.provider(**(options or {"apiKey": SECRET}))})

    def project(self, place: str = "opencode.json", **config: Any) -> Path:
        """The member's configuration; the models have been asked nothing since."""
        (self.directory / place).parent.mkdir(exist_ok=True)
        (self.directory / place).write_text(json.dumps(config))
        for model in (self.theirs, self.mine):
            model.received.clear()
            model.bodies.clear()
        return self.directory / place

    @asynccontextmanager
    async def anna(self, *, shared: bool | None = True, turns: Turns = (), **limits: Any) -> AsyncIterator[RunningApp]:
        """A server as she sees it, whose keys are `shared` with her."""
        settings = {} if shared is None else {"shared_keys": shared}
        async with running_app(self.base, turns=turns, **settings) as app:
            async with user(app, "anna", roots=[self.directory], **limits) as anna:
                yield anna

    @asynccontextmanager
    async def alone(self, **settings: Any) -> AsyncIterator[RunningApp]:
        """A server without users that works in the project."""
        async with running_app(self.base, workspace=self.directory, **settings) as app:
            yield app

    async def ask(self, app: RunningApp, model: str = "shared/m") -> dict[str, Any]:
        """The answer's facts, or the error of the request."""
        session = await app.post("/session", {"title": "T"}, params=self.query)
        provider_id, _, model_id = model.partition("/")
        body = {"model": {"providerID": provider_id, "modelID": model_id}, "parts": [text_part("hi")]}
        answer = (await app.client.post(f"/session/{session['id']}/message", json=body, params=self.query)).json()
        return answer.get("info", answer)

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


# Addresses.


def redirections(mine: RecordingModel) -> dict[str, dict[str, Any]]:
    """Ways in which a project may want a provider that is not its own to be reached elsewhere. What a member has of one without
    sharing: tests/unit/providers/test_ownership.py."""
    elsewhere = {"npm": "@ai-sdk/openai-compatible", "api": mine.url}
    return {
        "base url": {"options": {"baseURL": mine.url}},
        "all of it": mine.provider(),
        "api": {"api": mine.url, "options": {"baseURL": ""}},
        "of a model": {"models": {"m": {"provider": elsewhere}}, "options": {"baseURL": ""}},
        "of an alias": {"models": {"alias": {"id": "m", "provider": elsewhere}, "m": {"provider": elsewhere}}},
        "another adapter": {"npm": "@ai-sdk/anthropic", "options": {"baseURL": mine.url}},
    }


PLACES = ("opencode.json", "opencode.jsonc", ".opencode/opencode.jsonc")


@pytest.mark.parametrize("is_shared", [True, False], ids=["a member asks", "an admin asks there"])
async def test_a_shared_key_goes_to_the_operators_address_alone(desk: Desk, is_shared: bool) -> None:
    async with desk.anna(shared=is_shared or None) as anna, user(anna, "adam", "admin") as adam:
        for secret in ({"apiKey": SECRET}, {"headers": {"X-Api": SECRET}}):
            desk.shares(**secret)
            for (way, elsewhere), place in zip(redirections(desk.mine).items(), PLACES * 2, strict=True):
                written = desk.project(place, provider={"shared": elsewhere})
                for model in ("shared/m", "shared/alias"):
                    await desk.ask(anna if is_shared else adam, model)
                assert desk.theirs.saw(SECRET), (way, "what the operator shares is used")
                assert not desk.mine.received, way
                written.unlink()


@pytest.mark.parametrize("kept", ["environment", "store"])
async def test_a_key_of_the_environment_or_the_store_goes_to_no_address_of_a_project(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    providers = ("openai", "groq", "company")
    desk.project(provider={name: {**desk.mine.provider(), "env": ["THE_KEY"]} for name in providers})
    for name in ("THE_KEY", "OPENAI_API_KEY", "GROQ_API_KEY") if kept == "environment" else ():
        monkeypatch.setenv(name, SECRET)
    async with desk.anna() as anna, user(anna, "adam", "admin") as adam:
        for provider_id in providers:
            if kept == "store":
                await adam.call("PUT", f"/auth/{provider_id}", {"type": "api", "key": SECRET})
            await desk.ask(anna, f"{provider_id}/m")
    assert not desk.mine.saw(SECRET)


async def test_what_a_user_stores_in_place_of_a_key_takes_the_servers_nowhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GROQ_API_KEY", "SHARED_KEY"):
        monkeypatch.setenv(name, SECRET)
    desk.operates(provider={"shared": {**desk.theirs.provider(), "env": ["SHARED_KEY"]}})
    desk.project(provider={"groq": desk.mine.provider(), "shared": desk.mine.provider()})
    oauth = {"type": "oauth", "refresh": "r", "access": "a", "expires": 0}
    async with desk.anna() as anna:
        for provider_id in ("groq", "shared"):
            for stored in (oauth, *({"type": "api", "key": key} for key in ("", " ", OWN))):
                await anna.client.delete(f"/auth/{provider_id}")
                await anna.client.put(f"/auth/{provider_id}", json=stored)
                await desk.ask(anna, f"{provider_id}/m")
    assert not desk.mine.saw(SECRET)


async def test_what_the_operator_has_switched_off_stays_off(desk: Desk) -> None:
    desk.operates(disabled_providers=["shared"], provider={"shared": desk.theirs.provider(apiKey=SECRET)})
    desk.project(disabled_providers=[], enabled_providers=["shared"])
    async with desk.anna() as anna:
        await desk.ask(anna)
    assert not desk.theirs.received


# Variables.


async def test_a_project_names_none_of_the_servers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("COMPANY_LOGIN", "HOME", "OPENCODE_SERVER_PASSWORD", "OPENSESSION_SECRET_KEY")
    for name in names:
        monkeypatch.setenv(name, SECRET)
    async with desk.anna() as anna, user(anna, "adam", "admin") as adam:
        for name in names:
            desk.project(provider=desk.named_variables(name))
            for who in (anna, adam):
                for provider_id in ("named", "substituted"):
                    await desk.ask(who, f"{provider_id}/m")
                assert SECRET not in (await who.client.get("/config", params=desk.query)).text
                assert name not in json.dumps((await who.get("/provider", params=desk.query))["all"])
            assert desk.mine.received and not desk.mine.saw(SECRET), name


async def test_the_servers_own_are_nobodys_key_without_users_either(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"OPENSESSION_SECRET_KEY": SECRET, "opensession_secret_key": SECRET}
    own |= {"OPENCODE_SERVER_USERNAME": LOGIN[0], "OPENCODE_SERVER_PASSWORD": LOGIN[1]}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    async with desk.alone(auth=LOGIN) as app:
        for name in own:
            desk.project(provider=desk.named_variables(name))
            for provider_id in ("named", "substituted"):
                await desk.ask(app, f"{provider_id}/m")
            assert desk.mine.received and not desk.mine.saw(SECRET), name
        assert SECRET not in await env_of(app)


async def test_no_program_gets_the_servers_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_project_takes_no_variable_from_others_commands(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_MODE", "production")
    hiding = desk.mine.provider(apiKey="production", headers={"X": "production"})
    desk.project(provider={"hiding": {**hiding, "env": ["BUILD_MODE"]}})
    async with desk.anna(shared=None) as anna, user(anna, "bert") as bert:
        await anna.get("/provider", params=desk.query)
        assert "BUILD_MODE=production" in await env_of(bert)


async def test_a_server_that_gets_users_while_it_runs_trusts_projects_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
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


# What is shown, and told in errors.


def full_of_secrets(theirs: RecordingModel) -> dict[str, Any]:
    options = {"headers": {"X-Api": SECRET, "X-Team": SECRET}, "masterKey": SECRET, "nested": {"bearer": SECRET}}
    model = {"headers": {"X-Odd": SECRET}, "options": {"accessKeyId": SECRET}, "variants": {"v": {"token": SECRET}}}
    login, query = theirs.url.replace("://", f"://user:p@{SECRET}@"), f"{theirs.url}?key={SECRET}&b=1"
    far = {"type": "remote", "url": f"http://127.0.0.1:9/{SECRET}/mcp?token={SECRET}", "headers": {"X-Odd": SECRET}}
    command = ["false", "--token", SECRET, f"--key={SECRET}"]
    return {
        "provider": {
            "shared": {**theirs.provider(**options), "models": {"m": model}},
            "query": theirs.provider(baseURL=query),
            "login": theirs.provider(baseURL=login),
            "api": {**theirs.provider(baseURL=""), "api": query, "models": {"m": {"provider": {"api": query}}}},
        },
        "mcp": {
            "near": {"type": "local", "command": command, "environment": {"PLAIN": SECRET}},
            "far": {**far, "oauth": False},
            "login": {"type": "remote", "url": f"http://user:{SECRET}@127.0.0.1:9/mcp", "oauth": False},
            "off": {"type": "local", "command": ["sh", "-c", f"TOKEN={SECRET} run"], "enabled": False},
        },
        "formatter": {"f": {"command": ["f", SECRET], "environment": {"PLAIN": SECRET}}},
        "lsp": {"l": {"command": ["l", SECRET], "env": {"PLAIN": SECRET}, "extensions": [".l"]}},
        "agent": {"build": {"options": {"apiKey": SECRET}}},
        "instructions": [f"http://127.0.0.1:9/page?token={SECRET}"],
    }


async def test_nothing_secret_is_shown_to_members(desk: Desk) -> None:
    desk.operates(**full_of_secrets(desk.theirs))
    async with desk.anna() as anna, user(anna, "vera", "viewer", roots=[desk.directory]) as vera:
        for path in SHOWING:
            for who in (anna, vera):
                assert SECRET not in (await who.client.get(f"/{path}", params=desk.query)).text, path
        config = await anna.get("/config", params=desk.query)
    assert config["mcp"]["near"]["command"][0] == "false" and config["mcp"]["far"]["url"].startswith("http://127.0.0.1:9/")


async def test_no_header_and_no_query_is_shown_to_anybody(desk: Desk) -> None:
    desk.operates(**{key: value for key, value in full_of_secrets(desk.theirs).items() if key not in ("mcp", "formatter", "lsp")})
    async with running_app(desk.base) as app:
        for path in SHOWING:
            assert SECRET not in (await app.client.get(f"/{path}")).text, path
        assert "shared" in (await app.get("/config"))["provider"]


async def test_who_runs_the_server_sees_the_programs_and_may_send_back_what_was_shown(desk: Desk) -> None:
    near = {"type": "local", "command": ["false", "--verbose"], "enabled": False, "environment": {"A": SECRET}}
    far = {"type": "remote", "url": f"http://127.0.0.1:9/mcp?token={SECRET}", "enabled": False}
    desk.operates(mcp={"near": near, "far": far})
    async with desk.anna(shared=None) as anna, user(anna, "adam", "admin") as adam:
        shown = await adam.get("/global/config")
        assert shown["mcp"]["near"]["command"] == near["command"]
        await adam.call("PATCH", "/global/config", {**shown, "username": "me"})
    assert json.loads(desk.operators.read_text())["mcp"] == {"near": near, "far": far}


async def test_a_provider_that_quotes_what_it_was_sent_tells_a_member_nothing(desk: Desk) -> None:
    theirs, providers = desk.theirs, {}
    address = f"{theirs.url}?key={SECRET}&b=%20{SECRET}"
    headers = {"X-Odd": SECRET, "Authorization": f"Odd {SECRET}"}
    for adapter in ("openai-compatible", "openai", "anthropic"):
        npm = {"npm": f"@ai-sdk/{adapter}"}
        providers |= {
            f"query-{adapter}": {**theirs.provider(baseURL=address, apiKey=SECRET), **npm},
            f"api-{adapter}": {**theirs.provider(baseURL="", apiKey=SECRET), **npm, "api": address},
            f"headers-{adapter}": {**theirs.provider(headers=headers), **npm, "models": {"m": {"headers": {"X-Other": SECRET}}}},
        }
    desk.operates(provider=providers)
    theirs.quotes = True
    async with desk.anna() as anna:
        for provider_id in providers:
            theirs.received.clear()
            told = json.dumps(await desk.ask(anna, f"{provider_id}/m"))
            assert "Incorrect" in told and SECRET not in told and theirs.saw(SECRET), provider_id


# Programs that the operator has configured.


async def test_a_project_takes_no_part_of_the_operators(desk: Desk) -> None:
    """No program of its own in the place of one gets what the operator gives that one, and no other address."""
    far = {"type": "remote", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Api": SECRET}, "oauth": False}
    near = {"type": "local", "command": ["false"], "environment": {"TOKEN": SECRET}}
    kinds = {"lsp": "env", "formatter": "environment"}
    theirs = {
        kind: {"near": {"command": ["near", "$FILE"], "extensions": [".x"], key: {"TOKEN": SECRET}}}
        for kind, key in kinds.items()
    }
    desk.operates(mcp={"far": far, "near": near}, **theirs)
    told = {kind: desk.directory / f"told-{kind}.txt" for kind in ("mcp", *kinds)}
    own = {kind: ["sh", "-c", f"env > {path}"] for kind, path in told.items()}
    mine = {"far": {"type": "remote", "url": desk.mine.url, "oauth": False}, "near": {"type": "local", "command": own["mcp"]}}
    desk.project(mcp=mine, **{kind: {"near": {"command": own[kind], "extensions": [".x"]}} for kind in kinds})
    async with desk.anna(shared=None, turns=[[call("write", filePath="a.x", content="x")], [say()]]) as anna:
        await anna.get("/mcp", params=desk.query)
        session = await anna.post("/session", {"title": "T"}, params=desk.query)
        await anna.post(f"/session/{session['id']}/message", {"parts": [text_part("Go")]}, params=desk.query)
        assert (desk.directory / "a.x").read_text() == "x"
        for path in told.values():
            await until(lambda path=path: path.exists() and "PATH=" in path.read_text())
    assert not [path for path in told.values() if SECRET in path.read_text()]
    assert desk.mine.received and not desk.mine.saw(SECRET)


async def test_an_mcp_server_that_quotes_what_it_was_given_tells_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.theirs.quotes = True
    quoting = ["sh", "-c", 'echo "bad $*, $PLAIN" >&2; exit 1', "sh", "--token", SECRET, f"--x={SECRET}", f"Y={SECRET}"]
    remote = {"type": "remote", "headers": {"X-Odd": SECRET}, "oauth": False}
    servers = {
        "far": {**remote, "url": f"{desk.theirs.url}?token={SECRET}"},
        "gone": {**remote, "url": f"http://127.0.0.1:9/?token={SECRET}"},
        "none": {"type": "remote", "url": f"ftp://user:{SECRET}@127.0.0.1:9/mcp?key={SECRET}", "oauth": False},
        "near": {"type": "local", "command": quoting, "environment": {"PLAIN": SECRET}},
    }
    desk.operates(mcp=servers)
    async with running_app(desk.base) as app, user(app, "anna") as anna:
        statuses = await anna.get("/mcp")
    assert desk.theirs.saw(SECRET) and "bad" in statuses["near"]["error"]
    assert SECRET not in json.dumps(statuses) + caplog.text


async def test_a_project_may_switch_an_mcp_server_off_and_its_own_works(desk: Desk) -> None:
    local = {"type": "local", "command": ["false"]}
    desk.operates(mcp={"near": local})
    desk.project(mcp={"near": {"enabled": False}, "own": {**local, "enabled": False}})
    async with desk.anna(shared=None) as anna:
        statuses = await anna.get("/mcp", params=desk.query)
    assert {name: status["status"] for name, status in statuses.items()} == {"near": "disabled", "own": "disabled"}


# Prices.


FREE = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
CREDIT = dict.fromkeys(FREE, -1000)
NO_USAGE = {"stream_options": {"include_usage": False}}
SAID: list[dict[str, Any]] = [
    {"m": {"cost": FREE}},
    {"m": {"cost": CREDIT}},
    {"m": {"cost": {**CREDIT, "context_over_200k": CREDIT}}},
    {"m": {"id": "m", "cost": FREE}, "alias": {"id": "m", "cost": FREE}},
    {"alias": {"id": "m"}},
    {"cheap": {"id": "m", "cost": FREE}, "alias": {"id": "cheap"}},
    {"alias": {"options": {"model": "m"}}, "m": {"options": {"model": "dear"}}},
    {"m": {"options": NO_USAGE}},
]
"""What a project says of a shared provider's models."""


async def test_prices_of_a_shared_model_are_the_operators(desk: Desk) -> None:
    desk.shares()
    agents = {"build": {"options": {"model": "dear", **NO_USAGE}}}
    async with desk.anna() as anna:
        for number, models in enumerate(SAID):
            desk.project(small_model="shared/m", provider={"shared": {"models": models}}, agent=agents)
            async with user(anna, f"anna{number}", roots=[desk.directory], max_cost=1.0) as bounded:
                for model in ("shared/alias", "shared/m", "shared/alias", "shared/m"):
                    await desk.ask(bounded, model)
            assert len(desk.theirs.received) == 1, (models, "a call costs 1.10 dollars")
            [body] = desk.theirs.bodies
            assert body["model"] == "m" and body["stream_options"] == {"include_usage": True}, models


NOTHING = {"prompt_tokens": 0, "completion_tokens": 0}
REPORTED: list[dict[str, Any]] = [
    {"prompt_tokens": 0, "completion_tokens": -10_000_000},
    {"prompt_tokens": -10_000_000, "completion_tokens": 0},
    {**NOTHING, "completion_tokens_details": {"reasoning_tokens": -10_000_000}},
    {**NOTHING, "prompt_tokens_details": {"cached_tokens": -10_000_000}},
    {"prompt_tokens": 10**30, "completion_tokens": -(10**30)},
]


async def test_what_a_provider_of_ones_own_reports_buys_nothing(desk: Desk) -> None:
    desk.shares()
    async with desk.anna() as anna:
        for number, usage in enumerate(REPORTED):
            desk.project(provider={"own": {**desk.mine.provider(), "models": {"m": {"cost": CREDIT}}}})
            desk.mine.usage = usage
            limits = {"max_cost": 1.0, "max_tokens": 1000}
            async with user(anna, f"anna{number}", roots=[desk.directory], **limits) as bounded:
                await bounded.call("PUT", "/auth/own", KEY)
                for model in ("own/m", "shared/m", "own/m", "shared/m"):
                    await desk.ask(bounded, model)
                total = (await bounded.get("/usage"))["total"]
            assert desk.mine.received and len(desk.theirs.received) <= 1, usage
            tokens = total["tokens"]
            assert min(total["cost"], *(tokens[kind] for kind in ("input", "output", "reasoning"))) >= 0, usage
            assert min(tokens["cache"].values()) >= 0, usage


async def test_no_price_is_below_nothing(desk: Desk) -> None:
    models = {"m": {"cost": {**CREDIT, "context_over_200k": CREDIT}}}
    desk.project(provider={"own": {**desk.mine.provider(), "models": models}})
    async with desk.alone() as app:
        answer = await desk.ask(app, "own/m")
        [shown] = [one for one in (await app.get("/config/providers"))["providers"] if one["id"] == "own"]
    assert answer["cost"] == 0 and "-1000" not in json.dumps(shown["models"]["m"]["cost"])


# Honest use.


async def test_keys_of_ones_own_work_for_a_provider_of_ones_own_and_of_the_operators(desk: Desk) -> None:
    model = {"name": "M", "headers": {"X-Of-Model": "yes"}, "options": {"reasoningEffort": "low"}}
    own = {**desk.mine.provider(headers={"X-Title": "Ours"}), "models": {"m": model}}
    desk.operates(provider={"shared": desk.theirs.provider(apiKey=SECRET), "open": desk.theirs.provider()})
    desk.project(model="own/m", provider={"own": own})
    async with desk.anna() as anna:
        for provider_id in ("own", "shared"):
            await anna.call("PUT", f"/auth/{provider_id}", KEY)
        for provider_id in ("own", "shared", "open"):
            assert "error" not in await desk.ask(anna, f"{provider_id}/m"), provider_id
    assert all(desk.mine.saw(text) for text in (OWN, "x-title: Ours", "x-of-model: yes", '"reasoning_effort":"low"'))
    assert desk.theirs.saw(OWN) and not desk.theirs.saw(SECRET)


async def test_a_project_describes_a_shared_model_and_names_it_anew(desk: Desk) -> None:
    desk.shares()
    desk.project(provider={"shared": {"models": {"mine": {"id": "m", "limit": {"context": 100_000, "output": 77}}}}})
    async with desk.anna(max_cost=100.0) as anna:
        answer = await desk.ask(anna, "shared/mine")
    assert answer["cost"] == pytest.approx(1.1) and desk.theirs.bodies[0]["max_tokens"] == 77


async def test_without_users_a_project_says_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPANY_LOGIN", OWN)
    desk.operates(provider={"shared": desk.theirs.provider()})
    costs = {"m": {"cost": {**FREE, "input": 2000}}}
    desk.project(provider={"shared": {"options": {"baseURL": desk.mine.url}, "env": ["COMPANY_LOGIN"], "models": costs}})
    async with desk.alone() as app:
        answer = await desk.ask(app)
    assert desk.mine.saw(OWN) and not desk.theirs.received and answer["cost"] == pytest.approx(2.0)
