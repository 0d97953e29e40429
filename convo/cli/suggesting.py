"""What could come next on a command line: handles, models, providers, profiles, settings.

A shell asks on every Tab, so nothing is imported that the answer does not need, nobody is asked
over a network, and whatever is wrong gives no candidates: a shell shows nothing of an error. A
store on a server is not looked into for the same reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from typer._click import Context

from convo.config import Settings, load, read
from convo.config.files import under_profile
from convo.errors import ConvoError
from convo.history import Session

SESSIONS = 200
"""Sessions that are offered, last used first."""

Candidates = list[tuple[str, str]]
"""Each with a few words about it."""


def handles(ctx: Context, incomplete: str) -> Candidates:
    """Sessions by name, `@last`, and ids and handles at an endpoint once one is begun."""
    there = _sessions(ctx)
    known = [(one.name, f"{one.strategy}, {one.model}") for one in there if one.name]
    begun = incomplete.startswith(("resp_", "conv_", "ses_"))
    held = [(handle, one.name) for one in there for handle in (one.handle, one.link, one.id) if begun and handle]
    last = [("@last", known[0][0])] if known else []
    return _fitting([*last, *known, *held], incomplete)


def models(ctx: Context, incomplete: str) -> Candidates:
    """Aliases, models that sessions were asked with, and once something is typed those that are written down."""
    settings = _settings(ctx)
    if settings is None:
        return []
    known = _written_down(settings) if incomplete else {}
    used = dict.fromkeys([settings.model, *(one.model for one in _sessions(ctx))], "used here")
    aliases = {name: f"stands for {model}" for name, model in settings.aliases.items()}
    return _fitting((aliases | used | {"local": "the built-in model"} | known).items(), incomplete)


def profiles(ctx: Context, incomplete: str) -> Candidates:
    found: dict[str, str] = {}
    with suppress(ConvoError):
        for file in read(_config(ctx)).files:
            tables = file.document.get("profiles")
            found |= dict.fromkeys(tables if isinstance(tables, dict) else (), f"in {file.origin.name}")
    return _fitting(found.items(), incomplete)


def providers(ctx: Context, incomplete: str) -> Candidates:
    settings = _settings(ctx)
    return _fitting([(one.name, one.api) for one in settings.providers.values()] if settings else (), incomplete)


OFFERS: Mapping[str, Callable[[Context, str], Candidates]] = MappingProxyType(
    {
        **dict.fromkeys(("handle", "handles", "a", "b", "state", "fork"), handles),
        "model": models,
        "profile": profiles,
        "provider": providers,
    }
)
"""What is offered for a parameter, by its name in the command's function."""


def settings_named(incomplete: str) -> list[str]:
    """The names of settings, down to what a person has to name."""
    from convo.config.shape import SHAPE, Named, Whole

    found = []
    for name, shape in SHAPE.items():
        below = shape.shape if isinstance(shape, Whole) else shape
        table = isinstance(below, Mapping) and not isinstance(shape, Named)
        found += [f"{name}.{each}" for each in below] if table and isinstance(below, Mapping) else [name]
    return [name for name in found if name.startswith(incomplete)]


def _written_down(settings: Settings) -> dict[str, str]:
    """Models of which a price is known."""
    from convo.ui.known_models import names

    return {name: "its price is known" for name in names(settings) if "/" in name}


def _fitting(found: Iterable[tuple[str, str]], incomplete: str) -> Candidates:
    return [(value, said) for value, said in dict(found).items() if value.startswith(incomplete)]


def _sessions(ctx: Context) -> Sequence[Session]:
    """Those in the store, last used first."""
    from convo.cli.wiring import from_store

    settings = _settings(ctx)
    if settings is None or settings.storage.type != "sqlite":
        return ()
    with suppress(ConvoError):
        return from_store(settings, lambda store: store.sessions(limit=SESSIONS))
    return ()


def _settings(ctx: Context) -> Settings | None:
    profile = ctx.find_root().params.get("profile")
    with suppress(ConvoError), under_profile(profile):
        return load(_config(ctx))
    return None


def _config(ctx: Context) -> Path | None:
    """What `--config` names; its function does not run while a line is completed."""
    named = ctx.find_root().params.get("config")
    return Path(named) if named else None
