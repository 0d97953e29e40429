"""Hypothesis strategies for JSON values and items as a client or a server could send them."""

import json
from typing import Any

from hypothesis import strategies as st

from convo.history.items import Item, Json

TEXT = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["", "\0", "\ud83d", "\udc00 half a pair", "日本語", "e\u0301", "\u2028", '"\\', "9007199254740993", "🎉"]
)
NUMBERS = (
    st.integers()
    | st.sampled_from([2**53, 2**53 + 1, -(2**64), 10**40])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e300, 5e-324])
)


def _through_json(value: Any) -> Json:
    """Return `value` after a JSON round trip, which joins adjacent surrogate halves into one character."""
    return json.loads(json.dumps(value))


JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
).map(_through_json)

TEXTS = st.sampled_from(["yes", "no", "why", "tree", "Café", ""])
PARTS = st.builds(
    lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["input_text", "output_text"]), TEXTS
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": TEXTS | st.lists(PARTS, max_size=2)},
    optional={"type": st.just("message"), "id": st.sampled_from(["msg_1", "msg_2"]), "status": st.just("completed")},
)
UNKNOWN = st.dictionaries(TEXT, JSON, max_size=4).map(
    lambda fields: _through_json({"type": "from_the_future", **fields})
)

ITEMS: st.SearchStrategy[Item] = MESSAGES | UNKNOWN | st.dictionaries(TEXT, JSON, max_size=3).map(_through_json)
"""Messages that are often equal, items of an unknown type, and arbitrary objects."""
