import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.providers.base import ApiFailure, MissingKey, ProviderFailure
from app.providers.retry import MAX_ATTEMPTS, MAX_ELAPSED_MS, decide_retry, delay_ms, retryable_reason

NOW = 1_700_000_000_000


def overloaded(headers: dict[str, str] | None = None) -> ApiFailure:
    return ApiFailure("slow down", status=429, retryable=True, headers=headers)


@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, 2_000), (2, 4_000), (3, 8_000), (4, 16_000), (5, 30_000), (6, 30_000), (9, 30_000)]
)
def test_without_advice_the_wait_doubles_up_to_half_a_minute(attempt: int, wait: int) -> None:
    assert delay_ms(overloaded(), attempt, NOW) == wait
    assert delay_ms(ApiFailure("reset", retryable=True), attempt, NOW) == wait


def date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(NOW / 1000, UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "700"}, 700),
        ({"retry-after-ms": "700.9"}, 700),
        ({"retry-after-ms": "0"}, 0),
        ({"retry-after-ms": "700", "retry-after": "9"}, 700),
        ({"retry-after": "3"}, 3_000),
        ({"retry-after": "1.5"}, 1_500),
        ({"retry-after": date(7)}, 7_000),
        *(({"retry-after": advice}, 2_000) for advice in (date(-7), "soon", "", "-4", "nan", "inf")),
        ({"retry-after-ms": "soon", "retry-after": "4"}, 4_000),
        ({"content-type": "text/html"}, 2_000),
    ],
)
def test_the_provider_s_advice_is_followed(headers: dict[str, str], wait: int) -> None:
    assert delay_ms(overloaded(headers), 1, NOW) == wait


@pytest.mark.parametrize(
    ("failure", "attempt", "elapsed", "decision"),
    [
        (overloaded(), 1, 0, (2_000, "slow down")),
        (overloaded(), MAX_ATTEMPTS - 1, 0, (30_000, "slow down")),
        (overloaded(), MAX_ATTEMPTS, 0, None),
        (overloaded(), 1, MAX_ELAPSED_MS - 2_000, (2_000, "slow down")),
        (overloaded(), 1, MAX_ELAPSED_MS - 1_999, None),
        (overloaded({"retry-after": "100000"}), 1, 0, None),
        (ApiFailure("Overloaded", retryable=True), 1, 0, (2_000, "Provider is overloaded")),
        (MissingKey("acme"), 1, 0, None),
        (ProviderFailure("broken"), 1, 0, None),
    ],
)
def test_ten_attempts_in_ten_minutes_are_enough(
    failure: ProviderFailure, attempt: int, elapsed: int, decision: tuple[int, str] | None
) -> None:
    assert decide_retry(failure, attempt, elapsed, NOW) == decision


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"type": "error", "error": {"type": "too_many_requests"}}, "Too Many Requests"),
        ({"code": "resource_exhausted"}, "Provider is overloaded"),
        ({"code": "service_unavailable"}, "Provider is overloaded"),
        ({"error": {"code": "rate_limit_exceeded"}}, "Rate Limited"),
        ({"error": {"message": "no_kv_space"}}, "Provider Server Error"),
        ({"error": {"type": "server_error"}}, "Provider Server Error"),
        ({"type": "error", "error": {"code": "server_error"}}, "Provider Server Error"),
        *((body, None) for body in (None, [1], {"error": "text"}, {"error": {"code": None}})),
        ({"type": "error", "error": {"type": "invalid_request_error"}}, None),
    ],
)
def test_an_error_is_tried_again_if_its_json_says_that_it_passes(body: object, reason: str | None) -> None:
    for failure in (ApiFailure(json.dumps(body), status=400), ProviderFailure(json.dumps(body))):
        assert retryable_reason(failure) == reason
        assert (decide_retry(failure, 1, 0, NOW) is None) is (reason is None)


def test_an_error_that_is_deep_json_is_not_tried_again() -> None:
    assert retryable_reason(ApiFailure("[" * 2000, status=400)) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.text(), lambda value: st.lists(value) | st.dictionaries(st.text() | st.just("error"), value)
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()), st.integers(1, 9), json_values)
def test_no_header_breaks_the_wait_and_no_json_the_decision(headers: dict[str, str], attempt: int, body: object) -> None:
    assert delay_ms(overloaded(headers), attempt, NOW) >= 0
    decide_retry(ApiFailure(json.dumps(body), status=400), 1, 0, NOW)
