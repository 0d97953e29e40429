"""How a command ends, as a number that scripts go by; these never change their meaning."""

from collections.abc import Mapping
from types import MappingProxyType

EXITS: Mapping[int, str] = MappingProxyType(
    {
        0: "done",
        1: "failed or incomplete",
        2: "usage or settings",
        3: "paused for approval",
        4: "lint findings",
        5: "not found",
        130: "interrupted",
    }
)

IN_WORDS = [f"{code} {meaning}" for code, meaning in EXITS.items()]
IN_LINES = f"Exit codes: {', '.join(IN_WORDS[:4])},\n{', '.join(IN_WORDS[4:])}."
