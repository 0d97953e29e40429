"""Whether an input fits a context window, by a count that may be an estimate."""

from collections.abc import Sequence

from convo.errors import WindowExceeded
from convo.history.items import Item, Json
from convo.usage.counting import TOKENIZER_ENCODING, TokenCount, count_text_tokens, max_token_count
from convo.usage.model_info import ModelWindow

ESTIMATE_ERROR_FACTOR = 3 / 2
"""An estimate may be up to this many times the model's own count."""


def describe_excess(
    items: Sequence[Item],
    instructions: str | None,
    tools: Json,
    model_name: str,
    window: ModelWindow,
    *,
    known_tokens: int = 0,
) -> str | None:
    """Describe how a request probably exceeds a window; None if it fits. Files and images are not counted.

    known_tokens:  of the items before `items`, as the endpoint reported them
    Raises WindowExceeded if it certainly does not fit.
    """
    if known_tokens + max_token_count(items, instructions, tools) <= window.max_input:
        return None
    count = count_text_tokens(items, instructions, tools)
    minimum_tokens = known_tokens + count_minimum_tokens(count, window)
    if minimum_tokens > window.context:
        raise WindowExceeded(model_name, minimum_tokens, window.context)
    tokens = known_tokens + count.tokens
    if tokens <= window.max_input:
        return None
    return f"{model_name} accepts {window.max_input:,} input tokens; this request has about {tokens:,}"


def count_minimum_tokens(count: TokenCount, window: ModelWindow) -> int:
    """Return the smallest count that the model's own tokenizer can give."""
    is_exact = not count.is_estimate and window.counted == TOKENIZER_ENCODING
    return count.tokens if is_exact else int(count.tokens / ESTIMATE_ERROR_FACTOR)
