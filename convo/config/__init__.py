"""Settings: what was asked for, by whom, and where things are kept.

In reading order: `origin` (seven layers, and how a value remembers its own), `checks` and `shape`
(what may stand in a file), `durations`, `secret`, `expand`, `postgres`, `storage`, `providers`,
`keys`, `prices` and `rates` (what single values mean), `settings` (the result), `layers` (how it comes
about), `names` (which model is meant), `binding` (where a session's record wins), `choice` (both
together), `places`, `files` and `trust` (the disk, and whose file may say what), `editing` (a file
with one value changed).

    sources = read(config, Flags(model="fast"))       the edge: variables, files
    settings = resolve(sources, record)               a plain function
    choice = choose(settings, record=record)          provider/model, and who chose it

Every command passes through here, so values are NamedTuples: a frozen dataclass takes eight times
as long to define. Change a copy with `_replace`.
"""

from convo.config.binding import Record, bind
from convo.config.checks import TENANT
from convo.config.choice import choose
from convo.config.files import load, read
from convo.config.keys import Found, find_key, is_keyed, key_of, token_of
from convo.config.layers import Flags, Sources, resolve
from convo.config.names import BUILT_IN_MODEL, Choice, ModelName
from convo.config.origin import Layer, Origin, Setting
from convo.config.places import Places, private
from convo.config.prices import Price, Room
from convo.config.providers import Provider
from convo.config.rates import KeyLimits, ServeLimits
from convo.config.secret import Secret
from convo.config.settings import ALONE, DEFAULT_LIMITS, Limits, Serve, Settings
from convo.config.storage import Storage

__all__ = [
    "ALONE",
    "BUILT_IN_MODEL",
    "DEFAULT_LIMITS",
    "TENANT",
    "Choice",
    "Flags",
    "Found",
    "KeyLimits",
    "Layer",
    "Limits",
    "ModelName",
    "Origin",
    "Places",
    "Price",
    "Provider",
    "Record",
    "Room",
    "Secret",
    "Serve",
    "ServeLimits",
    "Setting",
    "Settings",
    "Sources",
    "Storage",
    "bind",
    "choose",
    "find_key",
    "is_keyed",
    "key_of",
    "load",
    "private",
    "read",
    "resolve",
    "token_of",
]
