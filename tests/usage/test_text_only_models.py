"""The models that are known to accept only text: images are not sent to them."""

import pytest

from convo.usage.model_info import is_text_only_model


@pytest.mark.parametrize("model", ["local/demo", "deepseek/deepseek-chat"])
def test_these_models_accept_only_text(model: str) -> None:
    assert is_text_only_model(model)


@pytest.mark.parametrize(
    "model", ["openai/gpt-5", "openai/o3", "openrouter/deepseek/chat", "o1-mini", "my/local/x", ""]
)
def test_other_models_may_accept_images(model: str) -> None:
    assert not is_text_only_model(model)
