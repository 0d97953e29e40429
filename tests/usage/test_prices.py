"""The table of models, and prices from it and from the user's settings."""

import re

import pytest

from convo.config.sections import Price
from convo.usage.cost import Usage
from convo.usage.model_info import KnownModel, Shutdown, find_price, find_shutdown, load_known_models

MODELS = load_known_models()
PRICES = {name: model.price for name, model in MODELS.items() if model.price}
OWN = {"openai/gpt-5-mini": Price(1.0, 2.0, 0.5), "groq/x": Price(3.0, 4.0, 3.0)}


DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def test_every_model_has_a_provider_and_dates_and_its_replacement_stays() -> None:
    shutdowns = {name: model.shutdown for name, model in MODELS.items() if model.shutdown}
    dead = {name for name, model in MODELS.items() if model == KnownModel(shutdown=model.shutdown)}
    assert [name for name in MODELS if name.count("/") != 1] == []
    assert [name for name, model in MODELS.items() if name not in dead and not DATE.fullmatch(model.read)] == []
    assert [name for name, end in shutdowns.items() if not DATE.fullmatch(end.date)] == []
    assert [name for name in dead if not shutdowns[name].replacement] == []
    replacements = {end.replacement for end in shutdowns.values() if end.replacement}
    assert replacements <= set(MODELS) - set(shutdowns)


OPENAI_PAGES = (
    "https://developers.openai.com/",
    "https://platform.openai.com/",
    "https://github.com/openai/",
)
VENDOR_PAGES = {
    **dict.fromkeys(("gpt-", "o1", "o3", "o4", "codex-"), OPENAI_PAGES),
    "claude-": ("https://platform.claude.com/", "https://docs.anthropic.com/", "https://www.anthropic.com/"),
    "deepseek-": ("https://api-docs.deepseek.com/",),
}
"""The beginnings of the vendors' own pages, by the beginning of the model's name."""


def test_a_source_is_a_page_of_the_models_own_vendor_or_it_is_marked() -> None:
    figures = [(name, one) for name, model in MODELS.items() for one in (model.price, model.window) if one]
    others = []
    for name, source in [(name.rpartition("/")[2], one.source) for name, one in figures if not one.is_secondary]:
        pages = next((VENDOR_PAGES[start] for start in VENDOR_PAGES if name.startswith(start)), ())
        is_translated = re.search(r"//[^/]+/[a-z]{2}-[A-Z][A-Za-z]+/", source)
        if not source.startswith(pages) or source in pages or " " in source or is_translated:
            others.append((name, source))
    assert others == []
    assert {name for name, one in figures if one.is_secondary} == {"openai/gpt-6.2-astra", "anthropic/claude-fable-5-2"}


def test_cached_input_never_costs_more_and_output_never_less_than_input() -> None:
    assert [name for name, one in PRICES.items() if not 0 < one.cached <= one.input < one.output] == []


def test_a_price_in_the_settings_overrides_the_table() -> None:
    assert find_price("openai/gpt-5-mini", OWN) == OWN["openai/gpt-5-mini"]
    assert find_price("openai/gpt-5-mini-2025-08-07", OWN) == OWN["openai/gpt-5-mini"]
    assert find_price("openai/gpt-5-mini", {}) == PRICES["openai/gpt-5-mini"]
    assert find_price("groq/x", OWN) == OWN["groq/x"]
    assert find_price("groq/x-20250807", OWN) == OWN["groq/x"]
    prices = {"openai/gpt-5-mini-2025-08-07": Price(7.0, 8.0, 6.0), **OWN}
    assert find_price("openai/gpt-5-mini-2025-08-07", prices) == Price(7.0, 8.0, 6.0)


@pytest.mark.parametrize("model", ["gpt-5-mini", "azure/gpt-5-mini", "openai/gpt-5-mini-tuned", "scripted/echo", ""])
def test_another_provider_or_another_name_has_no_price(model: str) -> None:
    assert find_price(model, {}) is None


@pytest.mark.parametrize(
    ("model", "read", "write", "write_1h", "long_input", "long_output"),
    [
        # multiples of the input price: reads are 0.1, and less since GPT-6.1, Claude 5.5 and Fable 5.1; above 272,000
        # input tokens of GPT, and 100,000 of Haiku, the whole request costs more. Before GPT-5.6 a write costs nothing
        ("openai/gpt-5-mini", 0.1, 1, None, 1, 1),
        ("openai/gpt-5.1", 0.1, 1, None, 1, 1),
        ("openai/gpt-5.6-luna", 0.1, 1.25, None, 2, 1.5),
        ("openai/gpt-6-astra", 0.1, 1.25, None, 2, 1.5),
        ("openai/gpt-6.1-sol", 0.05, 1.25, None, 2, 1.5),
        ("openai/gpt-6.1-terra", 0.05, 1.25, None, 2, 1.5),
        ("openai/gpt-6.2-sol", 0.05, 1.25, None, 2, 1.5),
        ("openai/gpt-6.2-astra", 0.05, 1.25, None, 2, 1.5),
        ("anthropic/claude-sonnet-5", 0.1, 1.25, 2, 1, 1),
        ("anthropic/claude-opus-5-5", 0.05, 1.25, 2, 1, 1),
        ("anthropic/claude-sonnet-5-5", 0.05, 1.25, 2, 1, 1),
        ("anthropic/claude-fable-5-1", 0.025, 1.25, 2, 1, 1),
        ("anthropic/claude-fable-5-2", 0.025, 1.25, 2, 1, 1),
        ("anthropic/claude-mythos-5-1", 0.025, 1.25, 2, 1, 1),
        ("anthropic/claude-haiku-5-5", 0.1, 1.25, 2, 5, 5),
        # a price from the settings that says nothing of the cache
        ("groq/x", 1, 1, 2, 1, 1),
    ],
)
def test_every_token_of_a_request_has_the_price_of_its_class(
    model: str, read: float, write: float, write_1h: float | None, long_input: float, long_output: float
) -> None:
    price = find_price(model, {"groq/x": Price(3.0, 4.0, 3.0)})
    assert price
    for tokens, input_factor, output_factor in ((1_000, 1, 1), (300_000, long_input, long_output)):
        input_usd = tokens * price.input * input_factor / 1e6
        assert Usage(tokens).cost_usd(price) == pytest.approx(input_usd)
        assert Usage(tokens, cached_tokens=tokens).cost_usd(price) == pytest.approx(read * input_usd)
        assert Usage(tokens, cache_write_tokens=tokens).cost_usd(price) == pytest.approx(write * input_usd)
        if write_1h:
            written_1h = Usage(tokens, cache_write_tokens=tokens, cache_write_1h_tokens=tokens)
            assert written_1h.cost_usd(price) == pytest.approx(write_1h * input_usd)
        output_usd = 10 * price.output * output_factor / 1e6
        assert Usage(tokens, 0, 10).cost_usd(price) == pytest.approx(input_usd + output_usd)


def test_a_request_above_a_price_threshold_is_priced_completely_by_its_factors() -> None:
    """Source: OpenAI's page of the model: above 272,000 input tokens twice the input and 1.5 times the output."""
    price = find_price("openai/gpt-5.6-terra", {})
    assert Usage(input_tokens=272_000, cached_tokens=72_000, output_tokens=1_000).cost_usd(price) == pytest.approx(
        0.4 + 0.0144 + 0.012
    )
    above = Usage(input_tokens=272_001, cached_tokens=72_001, cache_write_tokens=100_000, output_tokens=1_000)
    assert above.cost_usd(price) == pytest.approx(2 * (0.2 + 0.0144 + 0.25) + 0.018, rel=1e-4)


def test_cache_writes_are_billed_once() -> None:
    price = Price(1.0, 2.0, 0.1, written=1.25)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, cache_write_tokens=200_000)
    assert usage.cost_usd(price) == pytest.approx(0.4 + 0.04 + 0.25)


@pytest.mark.parametrize(
    ("model", "usage", "cost_usd"),
    [
        # 2,000 uncached at $2, 30,000 cached at $0.20, 6,000 written at 1.25 x $2, 500 of output at $10
        ("claude-sonnet-5", Usage(38_000, 30_000, 500, 0, 6_000), 0.004 + 0.006 + 0.015 + 0.005),
        # of the 6,000 written tokens, 4,000 for an hour at 2 x $2
        ("claude-sonnet-5", Usage(38_000, 30_000, 500, 0, 6_000, 4_000), 0.004 + 0.006 + 0.005 + 0.016 + 0.005),
        # all for an hour: 1,000 x 2 x $5, and 100 uncached
        ("claude-opus-5-20260724", Usage(1_100, 0, 0, 0, 1_000, 1_000), 0.01 + 0.0005),
        ("claude-fable-5-1", Usage(2_000_000, 1_000_000, 0, 0, 1_000_000), 0.25 + 12.5),
        # cached since 7 October 2026 at 0.05 x $2
        ("claude-sonnet-5-5", Usage(38_000, 30_000, 500, 0, 6_000), 0.004 + 0.003 + 0.015 + 0.005),
    ],
)
def test_cache_writes_of_claude_cost_more_the_longer_they_are_kept(model: str, usage: Usage, cost_usd: float) -> None:
    assert usage.cost_usd(find_price(f"anthropic/{model}", {})) == pytest.approx(cost_usd, rel=1e-9)


@pytest.mark.parametrize(
    ("usage", "cost_usd"),
    [
        # up to 100,000 input tokens, and above, where the whole call costs five times as much
        (Usage(100_000, 40_000, 1_000, 0, 20_000), 0.004 + 0.0004 + 0.0025 + 0.0005),
        (Usage(200_000, 140_000, 1_000, 0, 20_000, 20_000), 0.02 + 0.007 + 0.02 + 0.0025),
    ],
)
def test_a_long_call_of_claude_haiku_has_its_factors_on_the_cache_prices_too(usage: Usage, cost_usd: float) -> None:
    assert usage.cost_usd(find_price("anthropic/claude-haiku-5-5", {})) == pytest.approx(cost_usd, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "tier", "factor"),
    [
        ("gpt-6.1-terra", None, 1.0),
        ("gpt-6.1-terra", "default", 1.0),
        ("gpt-6.1-terra", "flex", 0.5),
        ("gpt-6.1-terra", "batch", 0.5),
        ("gpt-6.1-terra", "fast", 2.0),
        ("gpt-6.1-terra", "priority", 2.0),
        ("gpt-6-astra", "ultrafast", 6.0),
        # until 28 February 2027, as its page says
        ("gpt-6.2-sol", "ultrafast", 3.0),
        ("gpt-6.1-terra", "scale", None),
    ],
)
def test_the_service_tier_that_a_response_reports_decides_its_price(
    model: str, tier: str | None, factor: float | None
) -> None:
    for usage in (Usage(200_000, 100_000, 1_000, 0, 50_000), Usage(300_000, 0, 1_000)):
        standard = usage.cost_usd(find_price(f"openai/{model}", {}))
        cost = usage.cost_usd(find_price(f"openai/{model}", {}, tier))
        assert cost == (pytest.approx(factor * standard, rel=1e-9) if factor and standard else None)


def test_a_price_in_the_settings_holds_at_every_tier() -> None:
    assert find_price("groq/x", OWN, "flex") == OWN["groq/x"]


@pytest.mark.parametrize(
    ("model", "listed_date", "found"),
    [
        ("openai/o4-mini", None, Shutdown("2026-10-23", "openai/gpt-6.1-terra")),
        ("openai/o4-mini-2025-04-16", None, Shutdown("2026-10-23", "openai/gpt-6.1-terra")),
        ("openai/gpt-4o-2024-05-13", None, Shutdown("2026-10-23", "openai/gpt-6.1-sol")),
        ("openai/gpt-4o-2024-11-20", None, Shutdown("2027-01-14", "openai/gpt-6-luna")),
        ("openai/gpt-5-mini", None, Shutdown("2026-12-11", "openai/gpt-6.1-terra")),
        ("openai/gpt-5-mini", "2027-02-01", Shutdown("2027-02-01", "openai/gpt-6.1-terra")),
        ("azure/gpt-5-mini", None, None),
        ("azure/gpt-5-mini", "2027-08-01", Shutdown("2027-08-01")),
        ("openai/gpt-6.1-terra", None, None),
    ],
)
def test_the_date_of_the_server_precedes_that_of_the_table(
    model: str, listed_date: str | None, found: Shutdown | None
) -> None:
    assert find_shutdown(model, listed_date) == found


def test_a_shutdown_is_near_from_60_days_before_its_date() -> None:
    shutdown, day = Shutdown("2026-12-11"), 86_400
    october_12 = 1_791_763_200  # 60 days before
    assert [shutdown.is_near(october_12 + days * day) for days in (-1, 0, 60, 600)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("model", "short_usd", "long_usd"),
    [
        # of 200,000 input tokens 100,000 cached and 50,000 written, 1,000 of output; the same with 300,000 uncached
        ("openai/gpt-6-sol", 0.1 + 0.02 + 0.125 + 0.01, 2 * 0.6 + 0.015),
        ("openai/gpt-6-luna", 0.005 + 0.001 + 0.00625 + 0.0005, 2 * 0.03 + 0.00075),
        ("openai/gpt-6.1-sol", 0.1 + 0.01 + 0.125 + 0.01, 2 * 0.6 + 0.015),
        ("openai/gpt-6.1-terra", 0.05 + 0.005 + 0.0625 + 0.005, 2 * 0.3 + 0.0075),
        ("openai/gpt-6.2-sol", 0.1 + 0.01 + 0.125 + 0.01, 2 * 0.6 + 0.015),
        ("openai/gpt-6.2-astra", 0.4 + 0.04 + 0.5 + 0.04, 2 * 2.4 + 0.06),
        ("openai/gpt-6-astra", 0.5 + 0.1 + 0.625 + 0.05, 2 * 3.0 + 0.075),
        ("openai/gpt-5.6-sol", 0.25 + 0.05 + 0.3125 + 0.03, 2 * 1.5 + 0.045),
    ],
)
def test_gpt_6_has_the_prices_of_its_pages(model: str, short_usd: float, long_usd: float) -> None:
    price = find_price(model, {})
    assert Usage(200_000, 100_000, 1_000, 0, 50_000).cost_usd(price) == pytest.approx(short_usd, rel=1e-9)
    assert Usage(300_000, 0, 1_000).cost_usd(price) == pytest.approx(long_usd, rel=1e-9)


@pytest.mark.parametrize("model", ["openai/gpt-5.4-mini", "deepseek/deepseek-v4-flash", "openai/o4-mini"])
def test_a_model_has_no_price_unless_a_page_of_its_vendor_shows_all_of_it(model: str) -> None:
    assert find_price(model, {}) is None
