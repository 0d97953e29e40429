"""Cached answers of model servers: the models that each provider serves, and the context windows that servers report.

The lists are written by `convo models --ask` and by `GET /v1/models`, and read when a model is given without its
provider. The windows are written by `convo models --local` and by the offer of a chat. No server is called here.
Both are valid only for the base URL that they came from.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeGuard

from convo.config.paths import AppPaths, make_private_folder
from convo.config.sections import ContextLimits, Provider, find_model_entry
from convo.errors import StoreFault
from convo.runtime import open_temporary_file

_FILE_NAME = "model_lists.json"
_MAX_FILE_BYTES = 8 * 1024 * 1024
"""Ten times the longest list of a model router."""

_WINDOWS_FILE_NAME = "model_windows.json"
_MAX_REPORTED_MODELS = 1000
"""Models of one server whose windows are saved and read."""

_MAX_WINDOW_TOKENS = 10**9
"""The largest number that is accepted as a context window."""

REPORTED_SOURCE = "reported by its server"
"""The `source` of a context window that a server reported."""

ModelLists = Mapping[str, Mapping[str, object]]
"""{"base_url": ..., "models": [...], "shutdown_dates": {...}} by provider."""


def load_model_lists(paths: AppPaths) -> ModelLists:
    """Load the cached lists; {} without a readable file."""
    return _load_tables(paths, _FILE_NAME)


def _load_tables(paths: AppPaths, file_name: str) -> dict[str, dict[str, object]]:
    if not os.path.isfile(paths.state / file_name):  # opening a pipe would block
        return {}
    try:
        with open(paths.state / file_name, "rb") as file:
            tables = json.loads(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(tables, dict):
        return {}
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def get_listed_models(provider: Provider, model_lists: ModelLists) -> Sequence[str]:
    """Return the provider's model names as its server accepts them; () without a list for its base URL."""
    entry = model_lists.get(provider.name) or {}
    names = entry.get("models")
    if entry.get("base_url") != provider.base_url or not isinstance(names, list):
        return ()
    return [name for name in names if isinstance(name, str)]


def get_listed_shutdown_date(provider: Provider, model_lists: ModelLists, model: str) -> str | None:
    """Return the shutdown date of a model, YYYY-MM-DD, if the provider's server reported one."""
    entry = model_lists.get(provider.name) or {}
    dates = entry.get("shutdown_dates")
    date = dates.get(model) if entry.get("base_url") == provider.base_url and isinstance(dates, dict) else None
    return date if isinstance(date, str) else None


FetchedModelLists = Mapping[str, tuple[str | None, Mapping[str, str | None]]]
"""By provider: the base URL of the request, and the shutdown dates of the models by name; None for no date."""


def make_model_lists(fetched_lists: FetchedModelLists) -> dict[str, dict[str, object]]:
    return {
        provider: {
            "base_url": url,
            "models": [*models],
            "shutdown_dates": {name: date for name, date in models.items() if date},
        }
        for provider, (url, models) in fetched_lists.items()
    }


def save_model_lists(paths: AppPaths, fetched_lists: FetchedModelLists) -> None:
    """Save lists; those of other providers stay. A full disk is no error."""
    if fetched_lists:
        _save_tables(paths, _FILE_NAME, {**load_model_lists(paths), **make_model_lists(fetched_lists)})


ReportedWindows = Mapping[str, Mapping[str, object]]
"""The context windows in tokens by the base URL of their server and the model's name there."""


def load_reported_windows(paths: AppPaths) -> ReportedWindows:
    """Load the windows that servers reported; {} without a readable file."""
    return _load_tables(paths, _WINDOWS_FILE_NAME)


def save_reported_windows(paths: AppPaths, base_url: str, windows: Mapping[str, int | None]) -> None:
    """Save the windows that a server reported in place of its earlier ones. A full disk is no error."""
    known = {name: tokens for name, tokens in windows.items() if tokens is not None}
    tables, url = load_reported_windows(paths), _normalize_url(base_url)
    if known or url in tables:
        saved = dict([*known.items()][:_MAX_REPORTED_MODELS])
        _save_tables(paths, _WINDOWS_FILE_NAME, {**tables, url: saved})


def add_reported_windows(
    windows: Mapping[str, ContextLimits], providers: Mapping[str, Provider], reported: ReportedWindows
) -> dict[str, ContextLimits]:
    """Return the windows of the settings, and those that the servers of `providers` reported for other models."""
    merged = dict(windows)
    for provider in providers.values() if reported else ():
        table = reported.get(_normalize_url(provider.base_url or ""), {})
        # A file with 400,000 models delayed the first answer by four seconds.
        for model, tokens in islice(table.items(), _MAX_REPORTED_MODELS):
            name = f"{provider.name}/{model}"
            if is_context_window(tokens) and find_model_entry(windows, name) is None:
                merged[name] = ContextLimits(tokens, source=REPORTED_SOURCE)
    return merged


def is_context_window(value: object) -> TypeGuard[int]:
    """Return whether a value that a server reported can be a context window in tokens."""
    return type(value) is int and 0 < value <= _MAX_WINDOW_TOKENS


def _normalize_url(base_url: str) -> str:
    """Return one form for the URLs of a server on this machine."""
    return base_url.rstrip("/").replace("://localhost:", "://127.0.0.1:")


def _save_tables(paths: AppPaths, file_name: str, tables: Mapping[str, Mapping[str, object]]) -> None:
    with suppress(OSError, StoreFault):
        handle, name = open_temporary_file(make_private_folder(paths.state))
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(tables, file)
            os.replace(name, paths.state / file_name)
        except OSError:
            name.unlink(missing_ok=True)
            raise
