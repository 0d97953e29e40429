"""What a model thought before it answered.

In a terminal it is folded into one line, dim, before the answer; /reasoning unfolds what was thought
for the last message. A pipe hears nothing of it, and neither does who asked for quiet.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from convo.items import Item, is_user, kind
from convo.ui.answer import safe
from convo.ui.medium import Medium, cut

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

NO_WIDTH = 80


def thought(item: Item) -> str:
    """The words of a reasoning item: its text, or its summary where that is all; often there is neither."""
    parts = item.get("content") or item.get("summary") or ()
    return "\n\n".join(str(part["text"]).strip() for part in parts if part.get("text"))


def folded(words: str, medium: Medium) -> str:
    """One line, with how much more there is."""
    line = " ".join(safe(words).split())
    if not line:
        return ""
    room = (medium.width or NO_WIDTH) - 1
    shown = cut(f"thought: {line}", room)
    if shown.endswith("…"):
        more = f" ({len(line.split()):,} words; /reasoning)"
        shown = cut(f"thought: {line}", room - len(more)) + more
    return medium.paint(medium.drawn(shown), "dim")


async def reasoning(talk: "Conversing", _: str) -> None:
    """Say all that was thought for the last message."""
    said = list(_thoughts(talk.chat.held.path.items))
    if not said:
        talk.say("  nothing is known of what the model thought; many models keep it to themselves")
    for words in said:
        talk.say("\n".join(f"  {line}".rstrip() for line in words.split("\n")))


def _thoughts(items: tuple[Item, ...]) -> Iterator[str]:
    asked = max((at for at, item in enumerate(items) if is_user(item)), default=-1)
    for item in items[asked + 1 :]:
        if kind(item) == "reasoning" and (words := thought(item)):
            yield words
