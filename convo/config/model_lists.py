"""The model lists that providers gave, kept in a file of the state folder.

A list is asked for by `convo models --ask` and by `GET /v1/models` of a gateway, and kept. A bare model name is
looked up in what was kept; no server is asked for that. A list counts only for the base URL that gave it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from convo.config.places import Places, private
from convo.config.providers import Provider
from convo.errors import StoreFault
from convo.temporary import open_temporary

FILE = "model_lists.json"
MOST_BYTES = 8 * 1024 * 1024
"""Ten times the longest list that a router of models gives."""

ModelLists = Mapping[str, Mapping[str, object]]
"""By provider: {"base_url": ..., "models": [...]}."""


def read_lists(places: Places) -> ModelLists:
    """What was kept; {} where there is nothing that can be read."""
    try:
        with open(places.state / FILE, "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def list_of(provider: Provider, lists: ModelLists) -> Sequence[str]:
    """The names that `provider` gave, as it takes them; () where nothing was kept for its base URL."""
    kept = lists.get(provider.name) or {}
    names = kept.get("models")
    if kept.get("base_url") != provider.base_url or not isinstance(names, list):
        return ()
    return [name for name in names if isinstance(name, str)]


def keep_lists(places: Places, found: Mapping[str, tuple[str | None, Sequence[str]]]) -> None:
    """Keep the lists in `found`, by provider its base URL and its names; the others stay. A full disk is no error."""
    if not found:
        return
    lists = {
        **read_lists(places),
        **{name: {"base_url": url, "models": [*names]} for name, (url, names) in found.items()},
    }
    with suppress(OSError, StoreFault):
        handle, name = open_temporary(private(places.state))
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(lists, file)
            os.replace(name, places.state / FILE)
        except OSError:
            name.unlink(missing_ok=True)
            raise
