import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.base import ApiFailure, MissingKey, ProviderFailure
from app.turn import retry
from app.turn.retry import RetryAfter, decide_retry, delay_ms, retryable_reason

NOW = 1_700_000_000_000


def overloaded(**headers: str) -> ApiFailure:
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
        ({"retry-after": date(-7)}, 2_000),
        ({"retry-after": "soon"}, 2_000),
        ({"retry-after": ""}, 2_000),
        ({"retry-after": "-4"}, 2_000),
        ({"retry-after": "nan"}, 2_000),
        ({"retry-after": "inf"}, 2_000),
        ({"retry-after-ms": "soon", "retry-after": "4"}, 4_000),
        ({"content-type": "text/html"}, 2_000),
    ],
)
def test_the_provider_s_advice_is_followed(headers: dict[str, str], wait: int) -> None:
    assert delay_ms(overloaded(**headers), 1, NOW) == wait


def test_the_reason_that_clients_see_is_the_provider_s() -> None:
    assert decide_retry(overloaded(), 1, 0, NOW) == RetryAfter(2_000, "slow down")
    assert retryable_reason(ApiFailure("Overloaded", retryable=True)) == "Provider is overloaded"


def test_ten_attempts_are_enough() -> None:
    assert isinstance(decide_retry(overloaded(), retry.MAX_ATTEMPTS - 1, 0, NOW), RetryAfter)
    assert decide_retry(overloaded(), retry.MAX_ATTEMPTS, 0, NOW) is None


def test_ten_minutes_are_enough() -> None:
    assert isinstance(decide_retry(overloaded(), 1, retry.MAX_ELAPSED_MS - 2_000, NOW), RetryAfter)
    assert decide_retry(overloaded(), 1, retry.MAX_ELAPSED_MS - 1_999, NOW) is None
    assert decide_retry(overloaded(**{"retry-after": "100000"}), 1, 0, NOW) is None


@pytest.mark.parametrize(
    "failure",
    [
        ApiFailure("bad request", status=400),
        MissingKey("acme", "no key"),
        ProviderFailure("broken"),
        ApiFailure("null", status=400),
        ApiFailure("[1]", status=400),
        ApiFailure(json.dumps({"error": "text"}), status=400),
        ApiFailure(json.dumps({"error": {"code": None}}), status=400),
        ApiFailure(json.dumps({"type": "error", "error": {"type": "invalid_request_error"}}), status=400),
    ],
)
def test_what_will_fail_again_is_not_tried_again(failure: ProviderFailure) -> None:
    assert decide_retry(failure, 1, 0, NOW) is None


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
    ],
)
def test_an_error_that_is_retryable_by_its_json_is_tried_again(body: dict[str, object], reason: str) -> None:
    assert retryable_reason(ApiFailure(json.dumps(body), status=400)) == reason
    assert retryable_reason(ProviderFailure(json.dumps(body))) == reason


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()), st.integers(1, 9))
def test_no_header_breaks_the_wait(headers: dict[str, str], attempt: int) -> None:
    assert delay_ms(overloaded(**headers), attempt, NOW) >= 0


json_values = st.recursive(
    st.none() | st.booleans() | st.text(), lambda value: st.lists(value) | st.dictionaries(st.text() | st.just("error"), value)
)


@given(json_values)
def test_no_json_breaks_the_decision(body: object) -> None:
    failure = ApiFailure(json.dumps(body), status=400)
    decide_retry(failure, 1, 0, NOW)
