import gzip
from typing import Any

import httpx2
import pytest

from app.project.config import well_known
from app.project.config.errors import ConfigInvalidError
from app.project.config.well_known import Organisations, fetch_well_known, sign_ins
from app.schema.model import ApiAuth, WellKnownAuth

ADDRESS = "https://org.example/.well-known/opencode"


def serving(answers: dict[str, httpx2.Response | Exception]) -> httpx2.MockTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        found = answers[str(request.url)]
        if isinstance(found, Exception):
            raise found
        return found

    return httpx2.MockTransport(answer)


async def fetch(response: httpx2.Response | Exception, environ: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return await fetch_well_known(["https://org.example/"], environ or {}, serving({ADDRESS: response}))


async def test_the_config_of_each_url_in_order() -> None:
    urls = ["https://a.example", "https://b.example"]
    answers = {f"{url}/.well-known/opencode": httpx2.Response(200, json={"auth": {}, "config": {"theme": url}}) for url in urls}
    assert await fetch_well_known(urls, {}, serving(dict(answers))) == [{"theme": url} for url in urls]


async def test_the_token_is_substituted_and_without_a_configuration_there_is_none() -> None:
    config = {"mcp": {"jira": {"type": "remote", "url": "https://j", "headers": {"Authorization": "Bearer {env:ORG}"}}}}
    (layer,) = await fetch(httpx2.Response(200, json={"config": config}), {"ORG": "t"})
    assert layer["mcp"]["jira"]["headers"] == {"Authorization": "Bearer t"}
    assert await fetch(httpx2.Response(200, json={"auth": {"command": ["login"]}})) == [{}]
    assert await fetch_well_known([]) == []


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (httpx2.Response(503), "503"),
        (httpx2.Response(200, text="<html>"), "not JSON"),
        (httpx2.ConnectTimeout("timed out"), "timed out"),
        (httpx2.Response(200, json={"config": {"nope": 1}}), "nope"),
        (httpx2.Response(200, json=[1]), "object"),
        (httpx2.Response(200, json={"config": {"theme": "{file:secret.txt}"}}), "absolute"),
        (httpx2.Response(200, content=b" " * 1_000_001), "more than 1000000 bytes"),
        (httpx2.Response(200, headers={"content-encoding": "gzip"}, content=gzip.compress(b" " * 10_000_000)), "compressed"),
        (httpx2.Response(200, content=b"[" + b"0," * 200_000 + b"0]"), "not JSON"),
        *((httpx2.Response(200, content=deep * b"[" + deep * b"]"), "not JSON") for deep in (900, 50_000)),
    ],
)
async def test_what_goes_wrong_is_said_with_the_address(response: httpx2.Response | Exception, reason: str) -> None:
    with pytest.raises(ConfigInvalidError, match=reason) as caught:
        await fetch(response)
    assert caught.value.data["path"] == ADDRESS


def test_sign_ins_are_the_well_known_entries() -> None:
    auth = {"anthropic": ApiAuth(key="k"), "https://org.example": WellKnownAuth(key="ORG", token="t")}
    assert sign_ins(auth) == (["https://org.example"], {"ORG": "t"})


@pytest.mark.parametrize(
    "failure", [ConfigInvalidError(ADDRESS, "unreachable"), FileNotFoundError("SSL_CERT_FILE"), RuntimeError()]
)
async def test_a_failure_of_any_kind_is_kept_for_a_while_only(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [failure, [{"theme": "dark"}]]

    async def fetched(*_: object) -> list[dict[str, Any]]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    monkeypatch.setattr(well_known, "fetch_well_known", fetched)
    organisations = Organisations(lambda: {"https://org.example": WellKnownAuth(key="ORG", token="t")}, {})
    for _ in range(2):
        with pytest.raises(type(failure)):
            await organisations.config()
    monkeypatch.setattr(well_known, "RETRY_SECONDS", -1)
    assert (await organisations.config()).layers == [{"theme": "dark"}]
