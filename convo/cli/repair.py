"""`convo repair`: write a repaired copy of an invalid history.

The source is not changed. The copy is a new session or a new file. A valid history gets no second session; it is copied
to a file unchanged, so that a script can read the file in any case.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from shlex import quote
from typing import Annotated, NamedTuple

from convo.chat.item_file import check_new_item_file, write_item_file
from convo.chat.prefix_guard import PrefixGuard
from convo.chat.session_admin import check_repaired_name_free, save_repaired_session
from convo.cli.deps import endpoint_session, open_configured_store
from convo.cli.lint_target import LintTarget, load_lint_target
from convo.cli.output import print_json, print_line, print_notice
from convo.cli.resolve import LookupOptions
from convo.config.loader import choose_model, load_settings
from convo.errors import InvalidUsage
from convo.history.records import Scope, Session, Strategy
from convo.history.tree import Path
from convo.lint.model import RepairChange
from convo.lint.repair import RepairResult, repair_for_file, repair_for_session
from convo.lint.rules import lint_history
from convo.prompt_cache.forecast import PrefixForecast
from convo.report import OPTIONAL, Count, Wire
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.selection import is_file_handle
from convo.terminal.report_views import render_repair
from convo.terminal.terminal import detect_display


class RepairOptions(NamedTuple):
    """The arguments of one `convo repair`; `name` is that of the new session or file."""

    handle: str
    name: str
    dry_run: bool = False


def run_repair(options: RepairOptions, lookup: LookupOptions, *, as_json: bool) -> None:
    """Repair the history that `options.handle` names in a copy, and print the changes.

    Raises the errors of `load_lint_target`, Unrepairable for a finding without a fix, and InvalidUsage or Conflict for
    an invalid or taken name.
    """
    target = load_lint_target(options.handle, lookup)
    if target.run_state:
        raise InvalidUsage("a paused run cannot be repaired", hint=f"convo resume {quote(options.handle)}")
    to_file = _is_file_name(options.name)
    if target.view.has_unread_items and not to_file:
        raise InvalidUsage(
            "a request that continues server-side state has only a part of its history",
            hint="write it to a file: --as ./other.json",
        )
    result = None
    if to_file:
        result = repair_for_file(target.view)
    elif lint_history(target.view):
        result = repair_for_session(target.view)
    if result and to_file:
        check_new_item_file(options.name) if options.dry_run else write_item_file(
            options.name, result.view.items, target.file
        )
    elif result:
        asyncio.run(_save_session(options, target, result, lookup))
    prefix = _forecast_prefix(target, result, lookup) if result else None
    _print_repair(options, target, result, prefix, as_json=as_json)


def _forecast_prefix(target: LintTarget, result: RepairResult, lookup: LookupOptions) -> PrefixForecast | None:
    """Return what the next request of the repaired history loses, if the request before it is known."""
    if target.conversation is None:
        return None
    guard = PrefixGuard(load_settings(lookup.config).prices)
    path = Path(target.conversation.path.root).append(result.view.items)
    return guard.forecast_history(target.conversation, path, SystemClock().now())


def _is_file_name(name: str) -> bool:
    return is_file_handle(name) or name.endswith(".jsonl")


def _print_repair(
    options: RepairOptions,
    target: LintTarget,
    result: RepairResult | None,
    prefix: PrefixForecast | None,
    *,
    as_json: bool,
) -> None:
    """Print the changes; None as `result`: nothing needs a change, and nothing was written."""
    if prefix and prefix.has_loss:
        print_notice(str(prefix))
    changes = result.changes if result else ()
    paths = target.item_paths
    if not as_json:
        display = detect_display(sys.stdout, os.environ)
        print_line(render_repair(options.name, result, paths, display, is_saved=not options.dry_run))
        return
    report = RepairReport(
        options.handle,
        options.name if result and not options.dry_run else None,
        result.view.strategy if result else None,
        len(result.view.items) if result else len(target.view.items),
        [
            _build_change_report(change, target, paths[change.source_index] if change.source_index is not None else "$")
            for change in changes
        ],
        prefix,
    )
    print_json(report)


class RepairChangeReport(NamedTuple):
    """One change that a repair made."""

    code: str | None
    change: str
    message: str
    path: str
    item_index: Annotated[int | None, Wire("index")]
    id: str | None


class RepairReport(NamedTuple):
    """A repair.

    created:   the new session or file; null if none was written
    strategy:  the owner of the state
    prefix:    what the next request loses because of it; null if nothing is known
    """

    handle: str
    created: Annotated[str | None, Wire("made")]
    strategy: Strategy | None
    items: Count
    changes: Sequence[RepairChangeReport]
    prefix: Annotated[PrefixForecast | None, OPTIONAL]


def _build_change_report(change: RepairChange, target: LintTarget, path: str) -> RepairChangeReport:
    item = None if change.source_index is None else target.view.items[change.source_index]
    place = path, change.source_index, item.get("id") if item else None
    return RepairChangeReport(change.code or None, change.action, change.reason, *place)


async def _save_session(
    options: RepairOptions, target: LintTarget, result: RepairResult, lookup: LookupOptions
) -> Session | None:
    """Save the new session; None for a dry run."""
    settings = load_settings(lookup.config)
    async with open_configured_store(settings) as store:
        await check_repaired_name_free(store, options.name)
        if options.dry_run:
            return None
        model, scope = await _choose_model_and_scope(target, lookup, store)
        clock = SystemClock()
        return await save_repaired_session(
            store, result.view, options.name, model=model, scope=scope, clock=clock, new_id=random_id
        )


async def _choose_model_and_scope(target: LintTarget, lookup: LookupOptions, store: Store) -> tuple[str, Scope]:
    """Return the model of the copy and its endpoint: those of the source, else those of the settings."""
    model, scope = target.view.model, target.view.scope
    if model and scope:
        return model, scope
    settings = load_settings(lookup.config)
    choice = choose_model(settings, model, source=f"the record of {target.handle}")
    async with endpoint_session(choice, settings, store) as endpoint:
        return str(choice.name), scope or endpoint.scope
