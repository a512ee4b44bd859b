import pytest

from app.providers.catalogue import scripted_info
from app.providers.selection import (
    NoProviderError,
    ProviderModelNotFoundError,
    default_model,
    find,
    parse_model,
    small_model,
    sort_models,
)
from app.schema.model import Model, ModelApi, ProviderInfo
from app.schema.part import ModelRef


def info(provider_id: str, *model_ids: str) -> ProviderInfo:
    models = {
        id_: Model(id=id_, provider_id=provider_id, api=ModelApi(id=id_, npm="x"), name=id_, options={"of": id_})
        for id_ in model_ids
    }
    return ProviderInfo(id=provider_id, name=provider_id, source="env", models=models)


def connected(*infos: ProviderInfo) -> dict[str, ProviderInfo]:
    return {info.id: info for info in infos}


def test_a_model_name_splits_at_the_first_slash():
    assert parse_model("openrouter/openai/gpt-5") == ModelRef(provider_id="openrouter", model_id="openai/gpt-5")


def test_the_configured_default_wins():
    assert default_model(connected(info("a", "m")), "b/x/y") == ModelRef(provider_id="b", model_id="x/y")


def test_without_one_the_first_provider_gives_its_best_model():
    assert default_model(connected(info("a", "m1", "m2"), info("b", "gpt-5"))) == ModelRef(provider_id="a", model_id="m2")


def test_with_config_providers_the_first_of_them_is_taken():
    both = connected(info("a", "m"), info("b", "n"))
    assert default_model(both, None, ["b"]).provider_id == "b"
    assert default_model(both, None, ["gone"]).provider_id == "a"


def test_without_any_provider_the_error_says_what_to_do():
    with pytest.raises(NoProviderError, match="API key"):
        default_model({})


def test_later_preferences_win_then_latest_then_the_higher_id():
    ids = ["aaa", "zzz", "x-latest", "gpt-5", "gpt-5-mini", "claude-sonnet-4-5", "gemini-3-pro-preview"]
    ordered = [model.id for model in sort_models(info("p", *ids).models.values())]
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


def test_a_provider_without_a_small_model_borrows_opencodes_or_has_none():
    assert small_model(connected(info("a", "m")), "a") is None
    assert small_model(connected(info("a", "m"), info("opencode", "gpt-5-nano")), "a").provider_id == "opencode"


def test_the_configured_small_model_wins():
    assert small_model(connected(info("a", "claude-haiku-4-5"), info("b", "tiny")), "a", "b/tiny").id == "tiny"


def test_a_model_is_found_by_its_id():
    assert find(connected(info("a", "m")), "a", "m").id == "m"


def test_a_misspelt_model_gets_suggestions():
    with pytest.raises(ProviderModelNotFoundError) as caught:
        find(connected(info("a", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "llama")), "a", "gpt5-mini")
    body = caught.value.body()
    assert body["name"] == "ProviderModelNotFoundError"
    assert caught.value.status == 400
    assert (body["data"]["providerID"], body["data"]["modelID"]) == ("a", "gpt5-mini")
    assert body["data"]["suggestions"][0] == "gpt-5-mini"
    assert len(body["data"]["suggestions"]) <= 3
    assert "gpt-5-mini" in body["data"]["message"] and "/config/providers" in body["data"]["message"]


def test_a_misspelt_provider_gets_providers_as_suggestions():
    with pytest.raises(ProviderModelNotFoundError) as caught:
        find(connected(info("anthropic", "m"), info("openai", "m")), "antropic", "m")
    assert caught.value.data["suggestions"] == ["anthropic"]


def test_nothing_alike_suggests_nothing():
    with pytest.raises(ProviderModelNotFoundError) as caught:
        find(connected(info("a", "llama")), "a", "qqqq")
    assert caught.value.data["suggestions"] == []
