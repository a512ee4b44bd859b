"""Which of a provider's settings are secret, which variables hold them, and how they are taken out of a failure."""

from app.provider.base import ApiFailure, MissingKey
from app.provider.connected import key_variables
from app.provider.errors import redact
from app.schema.model import ProviderInfo


def test_variables_that_hold_a_key_are_those_that_are_named_and_those_whose_value_is_used() -> None:
    info = ProviderInfo(
        id="company",
        name="Company",
        source="config",
        env=["COMPANY_LLM"],
        options={"headers": {"Authorization": "Bearer from-a-variable"}, "region": "eu-central-1"},
        models={},
    )
    environ = {"COMPANY_LLM": "a", "LOGIN": "from-a-variable", "REGION": "eu-central-1", "HOME": "/home"}
    assert key_variables([info], environ) == {"COMPANY_LLM", "LOGIN"}


def test_a_failure_tells_no_secret() -> None:
    said = "Wrong key sk-secret-1."
    failure = ApiFailure(said, status=401, headers={"x-echo": said, "date": "now"}, body=said * 2, metadata={"url": said})
    redact(failure, ["sk-secret-1"])
    assert failure.message == str(failure) == "Wrong key ********."
    assert "sk-secret-1" not in f"{failure.headers} {failure.body} {failure.metadata}"
    assert failure.headers is not None and failure.headers["date"] == "now"


def test_a_failure_without_details_is_redacted_too() -> None:
    for failure in (ApiFailure("sk-secret-1"), MissingKey("x", "sk-secret-1")):
        redact(failure, ["sk-secret-1"])
        assert str(failure) == "********"
