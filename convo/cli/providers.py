"""What can be used now: each provider, what it lacks, and the models that its server names.

A provider is opened as a chat would open it, and nothing is sent: what would keep a chat from
beginning is known without a network. The servers themselves are asked only on request.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from convo.cli.saying import note, say, say_json
from convo.config import BUILT_IN_MODEL, Provider, Settings, choose, find_key, load, token_of
from convo.config.model_lists import keep_lists
from convo.config.names import named
from convo.config.providers import takes_no_key
from convo.endpoints.open import open_catalogue
from convo.errors import BadSettings, ConvoError, EndpointFault, KeyRefused, ModelMissing
from convo.items import Json
from convo.models.catalogue import Catalogue, ask
from convo.models.open import built_in, built_in_file
from convo.ui.medium import medium_of
from convo.ui.models import BuiltIn, Entry, screen

PATIENCE_S = 2.0
"""Seconds that a server has to say which models it has."""


def show(config: Path | None, *, asking: bool, as_json: bool) -> None:
    """Print what there is on stdout, and on stderr what a server said instead of its models."""
    settings = load(config)
    opened = [open_entry(settings, provider) for provider in settings.providers.values()]
    entries = asyncio.run(asked(opened)) if asking else [entry for entry, _ in opened]
    keep_lists(
        settings.places, {one.provider.name: (one.provider.base_url, one.models) for one in entries if one.models}
    )
    there = local(settings.places.models)
    if as_json:
        say_json(as_object(settings, there, entries))
        return
    say(screen(settings, there, entries, medium_of(sys.stdout, os.environ)))
    sys.stdout.flush()
    for entry in entries if asking else ():
        if words := said(entry):
            note(words)
    if asking and all(entry.models is None for entry in entries):
        keys = ", ".join(entry.variable for entry in entries if entry.variable and entry.key == "not set")
        note(
            "no server answered with its models"
            + (f"; set one of {keys}," if keys else ";")
            + " or describe one under [providers]"
        )


def open_entry(settings: Settings, provider: Provider) -> tuple[Entry, Catalogue | None]:
    """What is known of a provider without asking anybody, and whoever could be asked."""
    try:
        entry = key_state(provider)
    except BadSettings as kept:
        refused = KeyRefused(kept.message, hint=kept.hint)
        return Entry(provider, "not set", provider.key_env, lacks=refused), None
    try:
        choose(settings, f"{provider.name}/any")
        return entry, open_catalogue(provider, settings.places.models, settings.limits)
    except ConvoError as lacks:
        return replace(entry, lacks=lacks), None


def key_state(provider: Provider) -> Entry:
    """Whether its key is set, and where; never the key. raises: BadSettings  a file or keyring does not give it out"""
    if token_of(provider, os.environ):
        return Entry(provider, "set", provider.token_env, place=provider.token_env)
    if found := find_key(provider, os.environ):
        return Entry(provider, "set", provider.key_env, place=found.place)
    if takes_no_key(provider):
        return Entry(provider, "none needed", None)
    return Entry(provider, "not set", provider.key_env)


async def asked(opened: Sequence[tuple[Entry, Catalogue | None]]) -> list[Entry]:
    """The entries with what their servers say, all asked at once."""
    return await asyncio.gather(*(_answered(entry, server) for entry, server in opened))


async def _answered(entry: Entry, server: Catalogue | None) -> Entry:
    if server is None:
        return entry
    try:
        names = await ask(server, entry.provider.name, within_s=PATIENCE_S)
    except EndpointFault as failed:
        return replace(entry, failed=failed)
    return replace(entry, models=sorted(names))


def said(entry: Entry) -> str | None:
    """The line about a server that named no model."""
    if entry.failed:
        return entry.failed.message
    if entry.models == []:
        return f"{entry.provider.name} has no models"
    if entry.models is None and entry.lacks is None and entry.provider.base_url:
        return f"{entry.provider.name} was not asked: it lists other names than -m takes"
    return None


def local(models: Path) -> BuiltIn:
    try:
        path = built_in_file(models)
    except ModelMissing:
        path = None
    return BuiltIn(BUILT_IN_MODEL, built_in().size, path)


# -- for programs -----------------------------------------------------------------------------------


def as_object(settings: Settings, there: BuiltIn, entries: Sequence[Entry]) -> dict[str, Json]:
    path = None if there.path is None else str(there.path)
    return {
        "default": as_default(settings),
        "built_in": {"model": there.model, "installed": path is not None, "path": path, "size": there.size},
        "aliases": dict(settings.aliases),
        "providers": [as_provider(entry) for entry in entries],
    }


def as_default(settings: Settings) -> dict[str, Json]:
    """The model that answers when none is named; `model` is null where `written` names none."""
    try:
        model, error = str(named(settings, None, "model").name), None
    except BadSettings as wrong:
        model, error = None, as_error(wrong)
    return {"model": model, "written": settings.model, "origin": str(settings.origin("model")), "error": error}


def as_provider(entry: Entry) -> dict[str, Json]:
    provider, error = entry.provider, entry.lacks or entry.failed
    return {
        "name": provider.name,
        "api": provider.api,
        "endpoint": provider.endpoint,
        "base_url": provider.base_url,
        "key": entry.key,
        "key_env": entry.variable,
        "key_place": entry.place,
        "set_up": entry.lacks is None,
        "error": as_error(error) if error else None,
        "models": None if entry.models is None else list(entry.models),
    }


def as_error(error: ConvoError) -> dict[str, Json]:
    return {"code": error.code, "message": error.message, "hint": error.hint}
