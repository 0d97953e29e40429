"""Names for new things, as something that can be handed in.

Randomness is an effect: only the edges make ids, and a test hands in ids that count.
"""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

NewId: TypeAlias = Callable[[str], str]
"""Makes an id from its prefix: "msg" gives "msg_..."."""


def random_id(prefix: str) -> str:
    """`prefix`, "_" and 32 hex digits from the operating system's own source."""
    return f"{prefix}_{secrets.token_hex(16)}"


def counting_ids() -> NewId:
    """Ids that count for each prefix: "msg_1", "msg_2", "resp_1"."""
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}_{counts[prefix]}"

    return new_id
