"""Encrypted reasoning is requested only from models that support it: for others the request would fail."""

import pytest

from convo.usage.model_info import has_encrypted_reasoning


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-5-2025-08-07", "gpt-5-codex", "codex-mini-latest"),
        *("gpt-6-astra", "gpt-6-luna", "gpt-6.1-sol"),
        *("o1", "o1-2024-12-17", "o3", "o3-mini", "o4-mini"),
    ],
)
def test_encrypted_reasoning_is_requested_from_reasoning_models(model: str) -> None:
    assert has_encrypted_reasoning(model)


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-3.5-turbo", "gpt-5-chat-latest", "chatgpt-4o-latest", "llama3", ""],
)
def test_encrypted_reasoning_is_not_requested_from_other_models(model: str) -> None:
    assert not has_encrypted_reasoning(model)


@pytest.mark.parametrize("model", ["my-o3", "org/gpt-5", "ft:gpt-4o:acme::id"])
def test_a_name_that_only_contains_the_name_of_a_reasoning_model_is_none(model: str) -> None:
    assert not has_encrypted_reasoning(model)
