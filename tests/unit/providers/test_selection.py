"""Which model is taken where none is named, and what is said of one that nobody knows."""

import pytest
from fake_provider import model

from app.providers import selection
from app.providers.catalogue import scripted_info
from app.providers.selection import default_model, find, parse_model, small_model
from app.schema.model import ProviderInfo
from app.schema.part import ModelRef


def info(provider_id: str, *model_ids: str) -> ProviderInfo:
    models = {id_: model(id_, provider=provider_id) for id_ in model_ids}
    return ProviderInfo(id=provider_id, name=provider_id, source="env", models=models)


def connected(*infos: ProviderInfo) -> dict[str, ProviderInfo]:
    return {info.id: info for info in infos}


TWO = connected(info("a", "m1", "m2"), info("b", "gpt-5"))


@pytest.mark.parametrize(
    ("configured", "entries", "expected"),
    [
        ("b/x/y", [], ("b", "x/y")),
        (None, [], ("a", "m2")),
        (None, ["b"], ("b", "gpt-5")),
        (None, ["gone"], ("a", "m2")),
    ],
    ids=["the configured one", "the best of the first provider", "of the configuration's first", "of one that is not there"],
)
def test_the_default_model(configured: str | None, entries: list[str], expected: tuple[str, str]) -> None:
    assert default_model(TWO, configured, entries) == ModelRef(provider_id=expected[0], model_id=expected[1])


def test_a_model_name_splits_at_the_first_slash():
    assert parse_model("openrouter/openai/gpt-5") == ModelRef(provider_id="openrouter", model_id="openai/gpt-5")


def test_without_any_provider_the_error_says_what_to_do():
    with pytest.raises(selection.NoProviderError, match="API key"):
        default_model({})


def test_later_preferences_win_then_latest_then_the_higher_id():
    ids = ["aaa", "zzz", "x-latest", "gpt-5", "gpt-5-mini", "claude-sonnet-4-5", "gemini-3-pro-preview"]
    ordered = [model.id for model in selection.sort_models(info("p", *ids).models.values())]
    assert ordered == ["gemini-3-pro-preview", "claude-sonnet-4-5", "gpt-5-mini", "gpt-5", "x-latest", "zzz", "aaa"]


def test_the_scripted_provider_answers_with_rules_and_titles_with_its_small_model():
    offered = connected(scripted_info())
    assert default_model(offered).model_id == "rules"
    assert small_model(offered, "scripted").id == "title"


@pytest.mark.parametrize(
    ("provider_id", "ids", "expected"),
    [
        ("anthropic", ["claude-opus-4-5", "claude-3-5-haiku-latest", "claude-haiku-4-5"], "claude-haiku-4-5"),
        ("google", ["gemini-2.5-flash", "gemini-3-flash-preview"], "gemini-3-flash-preview"),
        ("github-copilot", ["claude-haiku-4.5", "gpt-5-mini"], "gpt-5-mini"),
        ("opencode", ["claude-haiku-4-5", "gpt-5-nano"], "gpt-5-nano"),
    ],
)
def test_the_small_model_of_a_provider(provider_id, ids, expected):
    assert small_model(connected(info(provider_id, *ids)), provider_id).id == expected


def test_a_small_model_is_the_configured_one_or_borrowed_of_opencode_or_there_is_none():
    assert small_model(connected(info("a", "m")), "a") is None
    assert small_model(connected(info("a", "m"), info("opencode", "gpt-5-nano")), "a").provider_id == "opencode"
    assert small_model(connected(info("a", "claude-haiku-4-5"), info("b", "tiny")), "a", "b/tiny").id == "tiny"


def missing(provider_id: str, model_id: str, *infos: ProviderInfo) -> selection.ProviderModelNotFoundError:
    with pytest.raises(selection.ProviderModelNotFoundError) as caught:
        find(connected(*infos), provider_id, model_id)
    return caught.value


def test_a_model_is_found_by_its_id_and_a_misspelt_one_gets_suggestions():
    assert find(TWO, "a", "m1").id == "m1"
    error = missing("a", "gpt5-mini", info("a", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "llama"))
    data = error.body()["data"]
    assert (error.status, error.body()["name"]) == (400, "ProviderModelNotFoundError")
    assert (data["providerID"], data["modelID"], data["suggestions"][0]) == ("a", "gpt5-mini", "gpt-5-mini")
    assert len(data["suggestions"]) <= 3 and "gpt-5-mini" in data["message"] and "/config/providers" in data["message"]
    assert missing("antropic", "m", info("anthropic", "m"), info("openai", "m")).data["suggestions"] == ["anthropic"]
    assert missing("a", "qqqq", info("a", "llama")).data["suggestions"] == []
    assert "`provider/model`" in str(missing("gpt-5", "", info("a", "gpt-5")))
