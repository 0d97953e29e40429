"""How much a model takes and gives, where somebody has written it down.

The figures stand in `models.toml`, dated and each with its source. A model that is not there has no
known window: nothing is refused on its behalf, and its server says itself what is too long.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from convo.config import Room

FIGURES = Path(__file__).with_name("models.toml")

DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""How a name ends that means one day's edition of a model."""


YOURS = "your settings"
"""The source of what a person said."""

NONE: Mapping[str, Room] = MappingProxyType({})


class Window(NamedTuple):
    """What a model has room for, in tokens.

    context:  input and output together
    output:   the longest answer; None where nobody said
    counted:  the vocabulary that counts its text exactly; None where a count is an estimate
    source:   where the figures were read
    """

    context: int
    output: int | None = None
    counted: str | None = None
    source: str = ""


def window_of(model: str, own: Mapping[str, Room] = NONE) -> Window | None:
    """The window of a model by its provider's own name, with a vendor in front ("openai/gpt-5") or without.

    own:  what a person said, by full name, which goes before what is written down
    """
    name = model.rpartition("/")[2]
    known = windows().get(name) or windows().get(DATED.sub("", name))
    said = own.get(model)
    if said is None:
        return known
    return Window(said.context, said.output, known.counted if known else None, YOURS)


@cache
def windows() -> Mapping[str, Window]:
    """Every window that is known, by name."""
    return {name: Window(**row) for name, row in figures()["windows"].items()}


@cache
def figures() -> Mapping[str, Any]:
    """All that is written down of models: when it was read, and its tables."""
    import tomllib  # few commands ask

    return tomllib.loads(FIGURES.read_text("utf-8"))
