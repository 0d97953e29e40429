"""Where a value came from.

Every setting can stand in seven layers. The first that says something wins, and what it says goes on
carrying the layer's name, so that nobody has to guess why a model answers that they did not choose:

    model = groq/some-model  (from .convo.toml, /home/me/work)
"""

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""The names that lead to a value in a settings file: ("providers", "groq", "base_url")."""

BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Layer(IntEnum):
    """Who said it; the smaller figure wins."""

    FLAG = 0
    ENVIRONMENT = 1
    RECORD = 2
    PROFILE = 3
    PROJECT = 4
    USER = 5
    DEFAULT = 6


LAYER_WORDS: Mapping[Layer, str] = {
    Layer.FLAG: "flag",
    Layer.ENVIRONMENT: "environment",
    Layer.RECORD: "record",
    Layer.PROFILE: "profile",
    Layer.PROJECT: "project",
    Layer.USER: "user",
    Layer.DEFAULT: "default",
}
"""The word of each layer in JSON."""


class Origin(NamedTuple):
    """One place in which a value was set.

    name:    how a person finds it: "-m", "CONVO_MODEL", "session 'x'", ".convo.toml", "built in"
    folder:  where a file of that name lies; relative paths in it begin there
    profile: the one of the file's profiles in which it stands; "" for the file's own
    """

    layer: Layer
    name: str
    folder: Path | None = None
    profile: str = ""

    @property
    def place(self) -> str:
        """The full name, as errors begin with it."""
        return str(self.folder / self.name) if self.folder else self.name

    def in_profile(self, name: str) -> "Origin":
        """The same file, in one of its profiles."""
        return Origin(Layer.PROFILE, self.name, self.folder, name)

    @property
    def insists(self) -> bool:
        """Whether it was said for this run, so that it may not be passed over in silence."""
        return self.layer <= Layer.ENVIRONMENT

    def __str__(self) -> str:
        if self.layer is Layer.DEFAULT:
            return self.name
        if self.profile:
            return f"from profile {self.profile} in {self.name}, {self.folder}"
        return f"from {self.name}, {self.folder}" if self.folder else f"from {self.name}"


BUILT_IN = Origin(Layer.DEFAULT, "built in")


class Setting(NamedTuple):
    """A value that knows where it came from. Its `str` is a line for people, without secrets."""

    key: Key
    value: object
    origin: Origin

    def __str__(self) -> str:
        return f"{dotted(self.key)} = {self.value}  ({self.origin})"


def dotted(key: Key) -> str:
    """`key` as it is written in TOML: names with other signs than letters, digits, _ and - in quotes."""
    return ".".join(name if name and BARE.issuperset(name) else f'"{name}"' for name in key)
