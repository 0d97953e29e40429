"""The history that `convo lint` and `convo repair` work on.

From a stored conversation, an endpoint, a file or stdin. A file that no session owns is read as it is: items in any
supported form, a request, or a paused run.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from convo.chat.files import format_os_error
from convo.chat.item_file import ItemFile, parse_item_file, read_item_file
from convo.chat.lookup import find_session_by_handle, to_absolute_path
from convo.chat.state_file import is_state_like, parse_state_bytes
from convo.chat.view_loader import OPEN_RUN_STATUSES
from convo.cli.deps import read_from_store
from convo.cli.resolve import LookupOptions, is_path_like, is_unknown_file, load_views
from convo.cli.state_input import STDIN_HANDLE, find_run_state
from convo.config.loader import load_settings
from convo.errors import InvalidUsage, ItemDeleted, Unreadable
from convo.history.items import get_call_id, is_client_call, is_client_output, is_user_message
from convo.history.records import is_compaction_link
from convo.inspect.tree import find_branch_links
from convo.inspect.view import ConversationView
from convo.lint.model import LintView, lint_view_of_conversation, lint_view_of_file
from convo.lint.report import LintReport, build_lint_report, find_item_lines
from convo.lint.secrets import find_exposed_secrets
from convo.prompt_cache.forecast import describe_changed_reasoning
from convo.runstate.format import iter_unresolved_calls
from convo.runstate.run_state import RunState
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.transfer.import_ import is_approval_item, run_state_items

PIPED_INPUT_LABEL = "piped input"


@dataclass(frozen=True)
class LintTarget:
    """One history to lint.

    conversation:    the view from a store or an endpoint; None for a file
    file:            the file, if it is one of items
    run_state:       the paused run, if it is one
    explicit_paths:  the JSON path of each item, where it is not the item's number
    """

    handle: str
    view: LintView
    conversation: ConversationView | None = None
    file: ItemFile | None = None
    run_state: RunState | None = None
    explicit_paths: Sequence[str] = field(default=())

    @property
    def item_paths(self) -> Sequence[str]:
        """The JSON path of each item."""
        return self.explicit_paths or [f"$[{index}]" for index in range(len(self.view.items))]

    def build_report(self) -> LintReport:
        """Lint the history."""
        report = build_lint_report(self.handle, self.view, item_paths=self.item_paths)
        report = replace(report, is_run_state=self.run_state is not None)
        if self.conversation:
            file = self.handle if self.conversation.replay_file and is_path_like(self.handle) else None
            return replace(report, node_keys=self.conversation.path.keys, file=file)
        item_lines = _find_item_lines(self.file) if self.file and report.findings else ()
        return replace(report, file=None if self.handle == STDIN_HANDLE else self.handle, item_lines=item_lines)


def _find_item_lines(file: ItemFile) -> Sequence[int]:
    """Return the line of each item; empty for an export, whose lines are items and links."""
    return () if file.export and not file.list_field else find_item_lines(file.text, file.list_field)


def load_lint_target(handle: str, lookup: LookupOptions) -> LintTarget:
    """Load the history that `handle` names.

    Raises NotFound, AmbiguousHandle, Unreadable or InvalidRunState, the errors of an endpoint that is called, and
    ItemDeleted for a history that lost an item and cannot be judged.
    """
    if handle == STDIN_HANDLE:
        return _target_from_stdin()
    state = find_run_state(handle, lookup.config)
    if state:
        return _target_from_state(handle, state)
    if _is_unrecorded_file(handle, lookup):
        return _target_from_file(handle, read_item_file(handle))
    (conversation,) = load_views([handle], lookup)
    if conversation.unreadable_head:
        raise ItemDeleted(conversation.unreadable_head)
    view = lint_view_of_conversation(conversation, SystemClock().now())
    pending_ids, changed = _read_pending_call_ids(conversation, lookup), _find_changed_prefixes(conversation)
    return LintTarget(handle, replace(view, pending_call_ids=pending_ids, changed_prefixes=changed), conversation)


def _find_changed_prefixes(view: ConversationView) -> dict[int, tuple[str, str]]:
    """Return the value of `LintView.changed_prefixes` for the next request with the settings of the last one."""
    links = find_branch_links(view)
    last = next((link for link in reversed(links) if not is_compaction_link(link)), None)
    if last is None:
        return {}
    view.path_index.add(view.path)
    next_link = replace(last, input_head=view.path.head, model=view.model or last.model, scope=view.scope or last.scope)
    found = describe_changed_reasoning(links, next_link, view.path_index)
    return {index: (message, link_id) for index, message, link_id in found}


def _read_pending_call_ids(view: ConversationView, lookup: LookupOptions) -> frozenset[str]:
    """Return the ids of the calls that an open agent run of the session performs, or that are pending in it."""
    session = view.session
    last = view.path.items[-1:]
    if session is None or not last or not (is_client_call(last[0]) or is_client_output(last[0])):
        return frozenset()

    async def read(store: Store) -> bool:
        rows = await store.agent_runs(session_id=session.id, limit=1)
        return bool(rows) and rows[0].status in OPEN_RUN_STATUSES

    if not read_from_store(load_settings(lookup.config), read):
        return frozenset()
    turn = takewhile(lambda item: not is_user_message(item), reversed(view.path.items))
    return frozenset(call_id for item in turn if is_client_call(item) and (call_id := get_call_id(item)))


def _is_unrecorded_file(handle: str, lookup: LookupOptions) -> bool:
    """Return whether a handle is a file that no session owns."""

    async def read(store: Store) -> bool:
        if not is_path_like(handle):
            return await is_unknown_file(store, handle)
        return await find_session_by_handle(store, to_absolute_path(handle)) is None

    if not is_path_like(handle) and not os.path.isfile(os.path.expanduser(handle)):
        return False
    return read_from_store(load_settings(lookup.config), read)


def _target_from_file(handle: str, file: ItemFile) -> LintTarget:
    paths = [f"$.{file.list_field}[{index}]" for index in range(len(file.items))] if file.list_field else ()
    return LintTarget(handle, lint_view_of_file(file.items, file.request_fields), file=file, explicit_paths=paths)


def _target_from_stdin() -> LintTarget:
    """Load the piped input: a paused run, or items in a form that a file may have."""
    if sys.stdin.isatty():
        raise InvalidUsage("- means piped input, but stdin is a terminal", hint="convo lint - < request.json")
    data = sys.stdin.buffer.read()
    if is_state_like(data):
        return _target_from_state(STDIN_HANDLE, parse_state_bytes(data, PIPED_INPUT_LABEL, javascript=True))
    try:
        return _target_from_file(STDIN_HANDLE, parse_item_file(PIPED_INPUT_LABEL, data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise Unreadable(f"{PIPED_INPUT_LABEL} cannot be read: {format_os_error(error)}") from error


def _target_from_state(handle: str, state: RunState) -> LintTarget:
    """Load a paused run: its pending calls are no error, and its owner may have the earlier items."""
    pending_ids = frozenset(call.id for call in state.pending)
    pending_ids |= {call.id for call in iter_unresolved_calls(state.document) if call.id}
    owner = {"previous_response_id": state.document.get("previous_response_id")}
    owner["conversation"] = state.document.get("conversation_id")
    view = replace(
        lint_view_of_file(run_state_items(state), owner),
        pending_call_ids=pending_ids,
        exposed_secrets=find_exposed_secrets(state.written_document),
    )
    return LintTarget(handle, view, run_state=state, explicit_paths=_run_state_item_paths(state))


def _run_state_item_paths(state: RunState) -> list[str]:
    """Return the JSON path of each item in the document of a run."""
    original_input = state.document["original_input"]
    paths = (
        ["$.original_input"]
        if isinstance(original_input, str)
        else [f"$.original_input[{index}]" for index in range(len(original_input))]
    )
    generated = enumerate(state.document.get("generated_items") or [])
    paths += [f"$.generated_items[{index}].raw_item" for index, item in generated if not is_approval_item(item)]
    return [state.format_member_path(path) for path in paths]
