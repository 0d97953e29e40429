"""The commands that show or change what goes with every turn, and what turns have used."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from convo.items import Json

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

NONE = "-"
"""What is said for no instructions."""


async def system(talk: "Conversing", words: str) -> None:
    if words:
        said = None if words == NONE else words
        talk.chat.asking = replace(talk.chat.asking, instructions=said)
        talk.say("from the next message on" if said else "no instructions from the next message on")
        return
    now = talk.chat.asking.instructions
    talk.say(
        "\n".join(f"  {line}" for line in now.splitlines()) if now else "  no instructions; /system TEXT sets some"
    )


async def tools(talk: "Conversing", _: str) -> None:
    offered = talk.runs.tools() if talk.runs else described(talk.chat.asking.parameters.get("tools") or ())
    wide = max((len(name) for name, _ in offered), default=0)
    for name, about in offered:
        talk.say(f"  {name:<{wide}}  {first_line(about)}".rstrip())
    if not offered:
        talk.say("  no tools go with a turn; agents have them: convo chat --agent FILE:NAME")


def described(offered: Sequence[Json]) -> list[tuple[str, str]]:
    """Each tool of a request by its name, or its type where it has none, and what is said of it."""
    return [(str(one.get("name") or one.get("type")), str(one.get("description") or "")) for one in offered]


def first_line(words: str) -> str:
    return next(iter(words.strip().splitlines()), "")


async def usage(talk: "Conversing", _: str) -> None:
    from convo.ui import spending

    talk.say(spending.usage(await talk.look.links(talk.chat), talk.look.prices))


async def cost(talk: "Conversing", _: str) -> None:
    from convo.ui import spending

    talk.say(spending.cost(await talk.look.links(talk.chat), talk.look.prices))
