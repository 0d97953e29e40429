"""What can be used, on a screen: which model answers, which providers there are, what each lacks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from convo.config import Layer, Provider, Settings
from convo.config.names import named
from convo.errors import BadSettings, ConvoError, KeyRefused, ModelMissing
from convo.tokens import price_of, window_of
from convo.ui.answer import safe
from convo.ui.labelled import Line, labelled
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines


@dataclass(frozen=True, slots=True)
class Entry:
    """One provider.

    key:       "set", "not set" or "none needed"
    variable:  the variable that holds the key, or would
    lacks:     why none of its models can be used
    failed:    what its server answered instead of its models
    models:    their names; None when it was not asked or did not say
    place:     what has the key: a variable, a file or the keyring; None while nothing has
    """

    provider: Provider
    key: str
    variable: str | None
    lacks: ConvoError | None = None
    failed: ConvoError | None = None
    models: Sequence[str] | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """The built-in model: its full name, the bytes it takes, and its file when that is here."""

    model: str
    size: int
    path: Path | None


def screen(settings: Settings, built_in: BuiltIn, entries: Sequence[Entry], medium: Medium) -> str:
    """All of it; behind the table a line for each model that a server named."""
    head = [
        *_default(settings),
        *_figures(settings),
        ("built in", _where(built_in)),
        *_aliases(settings),
        *_files(settings),
    ]
    told = [safe(f"{entry.provider.name}/{model}") for entry in entries for model in entry.models or ()]
    table = lines(fitted(_columns(entries), medium), medium)
    return medium.drawn("\n".join([*labelled(head, medium), "", *table, *([""] if told else []), *told]))


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _default(settings: Settings) -> Iterator[Line]:
    """The model that answers when none is named, or why none does."""
    origin = settings.origin("model")
    try:
        full = str(named(settings, None, "model").name)
    except BadSettings as wrong:
        yield "default", f"{settings.model} ({origin})"
        yield "", wrong.message
    else:
        written = f"{settings.model} = " if settings.model != full else ""
        yield "default", f"{written}{full} ({origin})"


def _figures(settings: Settings) -> Iterator[Line]:
    """What is written down of the model that answers: the room it has, and what it costs."""
    try:
        full = str(named(settings, None, "model").name)
    except BadSettings:
        return
    window, price = window_of(full, settings.windows), price_of(full, settings.prices)
    if window:
        yield "window", f"{window.context:,} tokens"
    if price:
        yield "price", str(price)


def _where(built_in: BuiltIn) -> str:
    if built_in.path is None:
        return f"{built_in.model}, not installed; convo models pull fetches it ({megabytes(built_in.size)})"
    return f"{built_in.model}, {built_in.path} ({megabytes(built_in.size)})"


def _aliases(settings: Settings) -> Iterator[Line]:
    """What each stands for, and why one leads to no model."""
    for at, (alias, stands_for) in enumerate(sorted(settings.aliases.items())):
        yield "" if at else "aliases", f"{alias} = {stands_for}"
        try:
            named(settings, alias, f"[aliases] {alias}")
        except BadSettings as wrong:
            yield "", wrong.message


def _files(settings: Settings) -> Iterator[Line]:
    """The settings files that said something, the stronger first, or the one that would be read."""
    files = (Layer.PROFILE, Layer.PROJECT, Layer.USER)
    said = dict.fromkeys(one.origin for one in settings.listed if one.origin.layer in files)
    places = list(dict.fromkeys(origin.place for origin in sorted(said)))
    for at, place in enumerate(places or [f"{settings.places.settings} says nothing yet"]):
        yield "" if at else "settings", place


def _columns(entries: Sequence[Entry]) -> list[Column]:
    providers = [entry.provider for entry in entries]
    return [
        Column("provider", [one.name for one in providers], style="id"),
        Column("api", [one.api for one in providers]),
        Column("endpoint", [one.endpoint for one in providers], goes=0),
        Column("set up", [_set_up(entry) for entry in entries]),
        Column("key", [_key(entry) for entry in entries]),
        Column("base URL", [one.base_url or "-" for one in providers]),
    ]


def _set_up(entry: Entry) -> str:
    """What is missing, in two words."""
    match entry.lacks:
        case None:
            return "yes"
        case KeyRefused():
            return "no key"
        case ModelMissing():
            return "no weights" if entry.provider.api == "local" else "no package"
    return "no base URL"


def _key(entry: Entry) -> str:
    if entry.place and entry.place != entry.variable:
        return f"{entry.place} {entry.key}"
    return f"{entry.variable} {entry.key}" if entry.variable else entry.key
