"""The last turns of a conversation that is gone on with, so that a person knows where they are.

A few lines of each, dim, with who said them. What is longer is cut, and says so; /inspect and
/export have all of it.
"""

from collections.abc import Iterator, Sequence

from convo.items import Item, is_assistant, is_user, text
from convo.ui.answer import safe
from convo.ui.medium import Medium, cut

TURNS = 2
LINES = 6
"""Of each message."""

NO_WIDTH = 80


def last_turns(items: Sequence[Item], medium: Medium, turns: int = TURNS) -> Iterator[str]:
    """The lines, none where nothing was said."""
    said = [item for item in items if (is_user(item) or is_assistant(item)) and text(item).strip()]
    asked = [at for at, item in enumerate(said) if is_user(item)]
    begin = asked[-turns] if len(asked) >= turns else 0
    if begin:
        yield medium.paint(medium.drawn(f"… {begin} earlier"), "dim")
    for item in said[begin:]:
        yield from _message(item, medium)


def _message(item: Item, medium: Medium) -> Iterator[str]:
    """The first lines of one message, behind the prompt's sign where a person said it."""
    room = (medium.width or NO_WIDTH) - 2
    lines = [line for line in safe(_words(item)).expandtabs(4).split("\n") if line.strip()]
    for at, line in enumerate(lines[:LINES]):
        mark = "> " if at == 0 and is_user(item) else "  "
        yield medium.paint(mark + medium.drawn(cut(line, room)), "dim")
    if len(lines) > LINES:
        yield medium.paint(medium.drawn(f"  … {len(lines) - LINES} more lines"), "dim")


def _words(item: Item) -> str:
    """What was said; of a person's message without what went along with it."""
    content = item.get("content")
    parts = [part for part in content if part.get("type") == "input_text"] if isinstance(content, list) else []
    return str(parts[0]["text"]) if is_user(item) and parts else text(item)
