"""The context windows of known models."""

import pytest

from convo.config.request_settings import find_request_settings
from convo.config.sections import ContextLimits, Price
from convo.config.settings import BUILT_IN_MODEL
from convo.config.values import BUILT_IN_SOURCE, Setting
from convo.models import local_process
from convo.usage.model_info import ModelWindow, find_model_window, find_price, load_known_models


@pytest.mark.parametrize(
    ("name", "context", "output"),
    [
        ("gpt-6.1-sol", 1_050_000, 128_000),
        ("gpt-5.4", 1_050_000, None),
        ("claude-fable-5-1", 1_000_000, 128_000),
        ("claude-opus-5-5", 1_000_000, 128_000),
        ("claude-sonnet-5-5", 1_000_000, 128_000),
        ("claude-haiku-5-5", 1_000_000, 128_000),
        ("deepseek-flash", 1_000_000, 384_000),
        ("deepseek-v4-flash", 1_000_000, 384_000),
    ],
)
def test_the_current_models_have_the_windows_of_their_vendors_pages(
    name: str, context: int, output: int | None
) -> None:
    window = find_model_window(name)
    assert window is not None
    assert (window.context, window.output) == (context, output)


@pytest.mark.parametrize(
    ("name", "context"),
    [("gpt-5", 400_000), ("gpt-5.2", 400_000), ("gpt-4o", 128_000), ("gpt-4.1", 1_047_576), ("o3", 200_000)],
)
def test_older_models_have_the_windows_of_their_vendors_repository(name: str, context: int) -> None:
    window = find_model_window(f"openai/{name}")
    assert window is not None
    assert (window.context, window.output) == (context, None)


def test_no_maximum_output_exceeds_its_context_window() -> None:
    windows = {name: model.window for name, model in load_known_models().items() if model.window}
    assert [name for name, window in windows.items() if not 0 < (window.output or 1) < window.context] == []


@pytest.mark.parametrize(
    "name",
    ["gpt-5-mini", "openai/gpt-5-mini", "gpt-5-mini-2025-08-07", "someone/openai/gpt-5-mini"],
)
def test_a_model_is_found_by_its_name_its_vendor_and_its_date(name: str) -> None:
    assert find_model_window(name) == load_known_models()["openai/gpt-5-mini"].window


def test_a_date_in_one_word_is_a_date_too() -> None:
    assert find_model_window("claude-haiku-4-5-20251001") == find_model_window("claude-haiku-4-5") is not None


@pytest.mark.parametrize("name", ["", "smollm2", "my-gpt-5-mini", "gpt-5-mini-tuned", "gpt-5-mini:latest"])
def test_a_similar_name_has_no_window(name: str) -> None:
    assert find_model_window(name) is None


def test_settings_without_a_window_change_nothing() -> None:
    other = {"openai/gpt-5.1": ContextLimits(1_000)}
    assert find_model_window("openai/gpt-5-mini-2025-08-07", other) == load_known_models()["openai/gpt-5-mini"].window
    assert find_model_window("gpt-5.1", other) == load_known_models()["openai/gpt-5.1"].window


def test_a_window_of_ones_own_needs_no_more_than_its_size() -> None:
    assert ModelWindow(4096).output is None


def test_a_window_in_the_settings_overrides_the_table_and_counts_as_exact() -> None:
    own = {"openai/gpt-5-mini": ContextLimits(1_000), "local/mine.gguf": ContextLimits(4_096, 512)}
    assert find_model_window("openai/gpt-5-mini", own) == ModelWindow(1_000, None, "o200k_base", "your settings")
    assert find_model_window("local/mine.gguf", own) == ModelWindow(4_096, 512, None, "your settings")
    assert find_model_window("openai/gpt-5.1", own) == load_known_models()["openai/gpt-5.1"].window


@pytest.mark.parametrize(
    ("name", "model", "is_same"),
    [
        ("ollama/llama3.2", "ollama/llama3.2:latest", True),
        ("ollama/llama3.2:latest", "ollama/llama3.2", True),
        ("ollama/me/llama3.2", "ollama/me/llama3.2:latest", True),
        ("ollama/llama3.2", "ollama/llama3.2:3b", False),
        ("ollama/llama3.2:3b", "ollama/llama3.2", False),
        ("ollama/llama3.2:3b", "ollama/llama3.2:3b:latest", False),
    ],
)
def test_settings_for_a_model_without_a_tag_are_those_for_its_tag_latest(name: str, model: str, is_same: bool) -> None:
    window, price = find_model_window(model, {name: ContextLimits(1_000)}), find_price(model, {name: Price(1, 2, 1)})
    settings = [Setting(("models", name, "verbosity"), "low", BUILT_IN_SOURCE)]
    assert [bool(found) for found in (window, price, find_request_settings(settings, model))] == [is_same] * 3


def test_settings_for_the_exact_name_precede_those_for_the_other_one() -> None:
    limits = {"ollama/x": ContextLimits(1_000), "ollama/x:latest": ContextLimits(2_000)}
    assert [getattr(find_model_window(name, limits), "context", 0) for name in limits] == [1_000, 2_000]


def test_the_built_in_model_has_the_window_that_its_engine_gives_it() -> None:
    window = find_model_window(BUILT_IN_MODEL)
    assert window is not None
    assert (window.context, window.output) == (local_process.CONTEXT_TOKENS, None)
    assert find_model_window("ollama/" + BUILT_IN_MODEL.removeprefix("local/")) is None
