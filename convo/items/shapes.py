"""The shapes that travel, as plain JSON.

Items, responses and events stay dictionaries from the wire to the store: a class would have to
drop, default or guess what it does not know. Whoever needs a field reads it through `kinds`,
`text` or `usage`, which know every form it comes in.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any JSON value: dict, list, str, int, float, bool or None."""

Item: TypeAlias = Mapping[str, Json]
"""One input or output item: `{"type": "message", ...}`; an easy message may have no type."""

Response: TypeAlias = Mapping[str, Json]
"""A whole response resource: `{"object": "response", "id": ..., "output": [items], ...}`."""

Event: TypeAlias = Mapping[str, Json]
"""One event of a response stream: `{"type": "response.output_text.delta", ...}`."""
