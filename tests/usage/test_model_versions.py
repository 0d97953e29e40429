"""What the version in a model's name says: the place of the instructions, and diagnostics of the cache."""

import pytest

from convo.config.sections import Provider
from convo.usage.model_info import appends_instructions, has_cache_diagnostics

OLDEST = ("gpt-35-turbo", "gpt-4o-2024-08-06", "gpt-4.1", "gpt-5-2025-08-07", "gpt-5.5", "o4-mini", "gpt-oss-120b", "m")
OLDER = (
    "gpt-5.6",
    "gpt-5.6-sol",
    "gpt-6-astra",
    "gpt-6-2026-06-01",
    "gpt-6.1-terra-2026-10-06",
    "ft:gpt-6-luna:org::id",
)
NEWER = ("gpt-6.2-sol", "gpt-6.2-sol-2026-11-17", "gpt-6.10", "gpt-7", "openai/gpt-6.2-astra", "ft:gpt-6.2-sol:org::id")


@pytest.mark.parametrize("model", [*OLDEST, *OLDER, *NEWER])
def test_the_version_decides(model: str) -> None:
    assert appends_instructions(model) is (model in NEWER)
    assert has_cache_diagnostics(model) is (model in (*OLDER, *NEWER))


@pytest.mark.parametrize(
    ("provider", "is_openai", "is_anthropic"),
    [
        (Provider("openai", "responses", "http://127.0.0.1:1/v1"), True, False),
        (Provider("work", "responses", "https://api.openai.com/v1"), True, False),
        (Provider("mine", "azure", "https://mine.openai.azure.com"), True, False),
        (Provider("openai", "chat", "https://api.openai.com/v1"), False, False),
        (Provider("openrouter", "responses", "https://openrouter.ai/api/v1"), False, False),
        (Provider("anthropic", "anthropic", "http://127.0.0.1:1"), False, True),
        (Provider("work", "anthropic", "https://api.anthropic.com"), False, True),
        (Provider("other", "anthropic", "https://other.example"), False, False),
    ],
)
def test_a_vendor_is_known_by_the_name_of_its_provider_or_by_its_host(
    provider: Provider, is_openai: bool, is_anthropic: bool
) -> None:
    assert (provider.is_openai, provider.is_anthropic) == (is_openai, is_anthropic)
