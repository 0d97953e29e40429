"""The prompt cache: why a request missed it, what a change of the prefix loses, and what each item costs.

Nothing here sends or stores anything. What no source of a vendor states is unknown (None) or "may", never a guess. The
vendors' rules are in `convo.usage.cache_rules`; read `compare` first, then `why`, `forecast` and `bill`.
"""

from typing import Literal, TypeAlias

Grouping: TypeAlias = Literal["item", "tool", "file", "agent", "model", "day", "kind"]
"""The parts of a bill. The command line reads it without the modules of this package, whose import takes time."""
