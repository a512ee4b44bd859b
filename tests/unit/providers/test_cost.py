import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.base import Usage
from app.providers.catalogue import tokens_and_cost
from app.schema.model import CachePrice, CostTier, ModelPrice, Price, PriceTier
from app.schema.part import CacheTokens, Tokens

PRICE = ModelPrice(input=1, output=2, cache=CachePrice(read=0.1, write=1.25))
DEARER = PRICE.model_copy(update={"experimental_over_200k": Price(input=2, output=4, cache=CachePrice(read=0.2))})


def test_the_example_that_opencode_shows_and_what_goes_into_the_cache():
    tokens, cost = tokens_and_cost(Usage(input=600, output=50, reasoning=10, cache_read=400), PRICE)
    assert tokens == Tokens(input=600, output=50, reasoning=10, cache=CacheTokens(read=400, write=0)) and cost == 0.00076
    assert tokens_and_cost(Usage(cache_write=1_000_000), PRICE)[1] == 1.25


@pytest.mark.parametrize(("fresh", "cached", "rate"), [(200_000, 0, 1), (200_001, 0, 2), (100_001, 100_000, 2)])
def test_above_200k_the_dearer_price_holds_for_everything(fresh, cached, rate):
    cost = tokens_and_cost(Usage(input=fresh, cache_read=cached), DEARER)[1]
    assert cost == pytest.approx(rate * (fresh + cached * 0.1) / 1e6)


@pytest.mark.parametrize(("read", "written", "is_dearer"), [(0, 199_990, False), (0, 199_991, True), (100_000, 99_991, True)])
def test_what_is_written_to_the_cache_is_of_the_prompt_too(read, written, is_dearer):
    usage = Usage(input=10, cache_read=read, cache_write=written)
    price = DEARER.model_copy(update={"experimental_over_200k": Price(input=2, cache=CachePrice(read=0.2, write=2.5))})
    charged = 10 + read * 0.1 + written * 1.25
    assert tokens_and_cost(usage, price)[1] == pytest.approx((2 if is_dearer else 1) * charged / 1e6)


TIERS = [PriceTier(input=2, tier=CostTier(size=128_000)), PriceTier(input=3, tier=CostTier(size=272_000))]


@pytest.mark.parametrize(("fresh", "rate"), [(128_000, 1), (128_001, 2), (250_000, 2), (272_001, 3)])
def test_the_highest_tier_that_a_prompt_is_above_holds_for_everything(fresh, rate):
    price = DEARER.model_copy(update={"tiers": TIERS})
    assert tokens_and_cost(Usage(input=fresh), price)[1] == pytest.approx(rate * fresh / 1e6)
    assert tokens_and_cost(Usage(input=300_000), PRICE)[1] == 0.3


@pytest.mark.parametrize("wrong", [math.nan, math.inf, None])
def test_counts_that_are_no_numbers_are_nothing(wrong):
    tokens, cost = tokens_and_cost(Usage(input=wrong, output=10), PRICE)
    assert (tokens.input, tokens.output, cost) == (0, 10, 0.00002)


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_decimal_arithmetic_adds_without_drift(fresh, output):
    price = ModelPrice(input=0.1, output=0.2)
    assert tokens_and_cost(Usage(input=fresh, output=output), price)[1] == (fresh + 2 * output) / 10**7
