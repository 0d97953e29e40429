"""`convo repair`: write a repaired copy of an invalid history.

The source is not changed. The copy is a new session or a new file; a valid history gets no copy.
"""

import asyncio
import os
import sys
from shlex import quote
from typing import NamedTuple

from convo.chat.item_file import check_new_item_file, write_item_file
from convo.chat.session_admin import check_session_name_free, save_repaired_session
from convo.cli.deps import endpoint_session, open_configured_store
from convo.cli.lint_target import LintTarget, load_lint_target
from convo.cli.output import print_json, print_line
from convo.cli.resolve import LookupOptions
from convo.config.loader import choose_model, load_settings
from convo.errors import InvalidUsage
from convo.history.items import Json
from convo.history.records import Scope, Session, Strategy
from convo.lint.model import RepairChange
from convo.lint.repair import RepairResult, repair_for_file, repair_for_session
from convo.lint.rules import lint_history
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.state import owner_of_handle
from convo.terminal.report_views import render_repair
from convo.terminal.terminal import detect_display


class RepairOptions(NamedTuple):
    """The arguments of one `convo repair`; `name` is that of the new session or file."""

    handle: str
    name: str
    dry_run: bool = False


def run_repair(asked: RepairOptions, where: LookupOptions, *, as_json: bool) -> None:
    """Repair the history that `options.handle` names in a copy, and print the changes.

    Raises the errors of `load_lint_target`, Unrepairable for a finding without a fix, and InvalidUsage or Conflict for
    an invalid or taken name.
    """
    broken = load_lint_target(asked.handle, where)
    if broken.state:
        raise InvalidUsage("a paused run is not mended as a history", hint=f"convo resume {quote(asked.handle)}")
    to_file = _is_file_name(asked.name)
    if broken.view.partial and not to_file:
        raise InvalidUsage(
            "a request that goes on from what its owner holds is no whole history", hint="--as ./other.json"
        )
    mended = (repair_for_file if to_file else repair_for_session)(broken.view) if lint_history(broken.view) else None
    if mended and to_file:
        check_new_item_file(asked.name) if asked.dry_run else write_item_file(
            asked.name, mended.view.items, broken.file
        )
    elif mended:
        asyncio.run(_save_session(asked, broken, mended, where))
    _print_repair(asked, broken, mended, as_json=as_json)


def _is_file_name(name: str) -> bool:
    return owner_of_handle(name) is Strategy.REPLAY or name.endswith(".jsonl")


def _print_repair(asked: RepairOptions, broken: LintTarget, mended: RepairResult | None, *, as_json: bool) -> None:
    """Print the changes; None as `result`: nothing had to be changed."""
    changes = mended.changes if mended else ()
    places = broken.paths
    if not as_json:
        medium = detect_display(sys.stdout, os.environ)
        print_line(render_repair(asked.name, mended, places, medium, kept=not asked.dry_run))
        return
    shape: dict[str, Json] = {
        "handle": asked.handle,
        "made": asked.name if mended and not asked.dry_run else None,
        "strategy": str(mended.view.strategy) if mended else None,
        "items": len(mended.view.items) if mended else len(broken.view.items),
        "changes": [_change_to_json(one, broken, places[one.at] if one.at is not None else "$") for one in changes],
    }
    print_json(shape)


def _change_to_json(one: RepairChange, broken: LintTarget, path: str) -> dict[str, Json]:
    item = None if one.at is None else broken.view.items[one.at]
    known = {"code": one.code or None, "change": one.what, "message": one.why, "path": path, "index": one.at}
    return {**known, "id": item.get("id") if item else None}


async def _save_session(
    asked: RepairOptions, broken: LintTarget, mended: RepairResult, where: LookupOptions
) -> Session | None:
    """Save the new session; None for a dry run."""
    settings = load_settings(where.config)
    async with open_configured_store(settings) as store:
        await check_session_name_free(store, asked.name)
        if asked.dry_run:
            return None
        model, scope = await _choose_model_and_scope(broken, where, store)
        clock = SystemClock()
        return await save_repaired_session(
            store, mended.view, asked.name, model=model, scope=scope, clock=clock, new_id=random_id
        )


async def _choose_model_and_scope(broken: LintTarget, where: LookupOptions, store: Store) -> tuple[str, Scope]:
    """Return the model of the copy and its endpoint: those of the source, else those of the settings."""
    model, scope = broken.view.model, broken.view.scope
    if model and scope:
        return model, scope
    settings = load_settings(where.config)
    choice = choose_model(settings, model, where=f"the record of {broken.handle}")
    async with endpoint_session(choice, settings, store) as endpoint:
        return str(choice.name), scope or endpoint.scope
