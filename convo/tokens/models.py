"""What is known of models by their names.

Asking a model that does not reason for its encrypted reasoning is an error, so it is asked only
of those that are known to have it. An image that a model does not take makes every later turn fail
as well, so one that is known to take words alone is not sent any.
"""

REASONING = ("gpt-5", "o1", "o3", "o4", "codex")
NOT_REASONING = ("gpt-5-chat",)


def seals_reasoning(model: str) -> bool:
    """Whether this OpenAI model can hand its reasoning out encrypted; `model` without its provider."""
    return model.startswith(REASONING) and not model.startswith(NOT_REASONING)


TEXT_ALONE = ("local/", "deepseek/", "openai/o1-mini", "openai/o3-mini", "openai/gpt-3.5")


def text_alone(model: str) -> bool:
    """Whether this model, named with its provider, is known to take neither images nor files."""
    return model.startswith(TEXT_ALONE)
