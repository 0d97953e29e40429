"""What is known of models by their names.

Asking a model that does not reason for its encrypted reasoning is an error, so it is asked only
of those that are known to have it.
"""

REASONING = ("gpt-5", "o1", "o3", "o4", "codex")
NOT_REASONING = ("gpt-5-chat",)


def seals_reasoning(model: str) -> bool:
    """Whether this OpenAI model can hand its reasoning out encrypted; `model` without its provider."""
    return model.startswith(REASONING) and not model.startswith(NOT_REASONING)
