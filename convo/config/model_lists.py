"""Cached lists of the models that each provider serves.

Written by `convo models --ask` and by `GET /v1/models`; read when a model is given without its
provider. No server is called here. A list is valid only for the base URL that it came from.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from convo.config.paths import AppPaths, make_private_folder
from convo.config.sections import Provider
from convo.errors import StoreFault
from convo.runtime import open_temporary_file

_FILE_NAME = "model_lists.json"
_MAX_FILE_BYTES = 8 * 1024 * 1024
"""Ten times the longest list of a model router."""

ModelLists = Mapping[str, Mapping[str, object]]
"""{"base_url": ..., "models": [...]} by provider."""


def load_model_lists(paths: AppPaths) -> ModelLists:
    """Load the cached lists; {} without a readable file."""
    try:
        with open(paths.state / _FILE_NAME, "rb") as file:
            lists = json.loads(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: entry for name, entry in lists.items() if isinstance(entry, dict)} if isinstance(lists, dict) else {}


def get_listed_models(provider: Provider, model_lists: ModelLists) -> Sequence[str]:
    """Return the provider's model names as its server accepts them; () without a list for its base URL."""
    entry = model_lists.get(provider.name) or {}
    names = entry.get("models")
    if entry.get("base_url") != provider.base_url or not isinstance(names, list):
        return ()
    return [name for name in names if isinstance(name, str)]


def save_model_lists(paths: AppPaths, fetched_lists: Mapping[str, tuple[str | None, Sequence[str]]]) -> None:
    """Save lists as {provider: (base URL, names)}; the lists of other providers stay. A full disk is no error."""
    if not fetched_lists:
        return
    lists = {
        **load_model_lists(paths),
        **{name: {"base_url": url, "models": [*names]} for name, (url, names) in fetched_lists.items()},
    }
    with suppress(OSError, StoreFault):
        handle, name = open_temporary_file(make_private_folder(paths.state))
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(lists, file)
            os.replace(name, paths.state / _FILE_NAME)
        except OSError:
            name.unlink(missing_ok=True)
            raise
