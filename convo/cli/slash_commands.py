"""Slash commands of the chat: the table, and one function for each command, which does its step.

`SLASH_COMMANDS` has for each name its usage, help and function. The function gets the `Repl`: `repl.chat` is the
conversation, `repl.context` has settings, endpoint and lease, and `repl.print_message` prints. An unknown command is an
error with a suggestion and is never sent to a model; a message that begins with a slash is typed with two. Each command
checks everything before it changes anything, because the chat stays open after an error.
Shell commands (!, !!) are here as well.
"""

import asyncio
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.conversation import Chat
from convo.chat.files import format_os_error, load_attachment
from convo.chat.history_nav import get_last_user_items, make_session_at_turn
from convo.chat.open import check_no_open_run, find_selected_session, fork_session, open_chat
from convo.chat.session_record import check_session_name_free
from convo.cli.context import check_replay_file_exists, get_command_prefix
from convo.cli.repl import Repl
from convo.config.request_settings import EFFORT_FIELD, REASONING_EFFORTS, find_similar_effort, get_request_field
from convo.config.values import find_closest_word
from convo.errors import Interrupted, InvalidUsage, UnsupportedValue
from convo.history.items import Json, is_user_message, item_preview, item_text, last_answer_text, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Path as TreePath
from convo.secrets import redact_server_address
from convo.stores.base import Store
from convo.strategies.kept_prefix import apply_configuration_items, find_configuration_items
from convo.strategies.selection import OwnerSelection, select_owner
from convo.terminal.answer import iter_last_turn_reasoning
from convo.terminal.attachments import format_attachment
from convo.terminal.clipboard import build_osc52_sequence, copy_with_programs
from convo.terminal.message_queue import TypedMessage
from convo.terminal.prompt import FILE_ARGUMENT
from convo.terminal.signals import ignore_signal, on_signal
from convo.terminal.status_line import format_request_fields, format_status
from convo.terminal.terminal import detect_display_without_color, format_count
from convo.usage.model_info import lacks_reasoning_effort

if TYPE_CHECKING:
    from convo.tools.tool import Tool

# -- the commands ----------------------------------------------------------------------------------


async def handle_attach(repl: Repl, text: str) -> None:
    if text:
        added = [(name, load_attachment(name)) for name in _split_file_names(text)]
        repl.check_input_supported([*repl.attachments, *added])
        repl.attachments.extend(added)
    if not repl.attachments:
        repl.print_message("no attachments; add one with /attach FILE, or @FILE in the message")
    for name, part in repl.attachments:
        repl.print_message(format_attachment(name, part))


async def handle_detach(repl: Repl, text: str) -> None:
    names = _split_file_names(text) or [name for name, _ in repl.attachments]
    remaining = [attachment for attachment in repl.attachments if attachment[0] not in names]
    if len(remaining) == len(repl.attachments):
        raise InvalidUsage("no such attachment" if names else "no attachments", hint="/attach lists the attachments")
    repl.attachments[:] = remaining
    repl.print_message(f"{format_count(len(remaining), 'attachment')} left" if remaining else "no attachments left")


def _split_file_names(text: str) -> Sequence[str]:
    """Split `text` into file names; names with blanks are quoted. Raises InvalidUsage for an unclosed quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidUsage(f"unclosed quote in {text!r}", hint='/attach "a name with blanks.txt"') from error


NO_INSTRUCTIONS = "-"
"""The argument of /system that removes the instructions."""

EFFORT_OF_SETTINGS = "-"
"""The argument of /effort that goes back to the effort of the command and of the settings."""


async def handle_system(repl: Repl, text: str) -> None:
    if text:
        instructions = None if text == NO_INSTRUCTIONS else text
        repl.chat.options = replace(repl.chat.options, instructions=instructions)
        repl.print_message(f"instructions {'changed' if instructions else 'removed'} from the next message on")
        return
    current = repl.chat.options.instructions
    repl.print_message(
        "\n".join(f"  {line}" for line in current.splitlines())
        if current
        else "  no instructions; set them with /system TEXT"
    )


async def handle_tools(repl: Repl, _: str) -> None:
    tools = (
        await repl.agent_chat.list_tools()
        if repl.agent_chat
        else list_request_tools(repl.chat.options.parameters.get("tools") or ())
    )
    width = max((len(name) for name, _ in tools), default=0)
    for name, description in tools:
        repl.print_message(f"  {name:<{width}}  {get_first_line(description)}".rstrip())
    if not tools:
        commands = ("--tool FILE.py:FUNCTION", "--agent FILE.py:NAME")
        offers = ", or ".join(f"{get_command_prefix()} chat {flag}" for flag in commands)
        repl.print_message(f"  no tools; a chat with tools: {offers}")


async def handle_mcp(repl: Repl, _: str) -> None:
    """Print the MCP servers of the active agent, and the tools that they list now."""
    agent = repl.agent_chat.runner.run.current_agent if repl.agent_chat else None
    if agent is None or agent.servers is None:
        repl.print_message(f"  no MCP servers; a chat with one: {get_command_prefix()} chat --mcp NAME")
        return
    from convo.agent_runner.prepare import list_server_tools
    from convo.tools.tool import Context

    tools: Sequence[Tool] = ()
    try:
        tools = await list_server_tools(agent, Context(agent.name, "", ""))
    finally:
        for name, state in agent.servers.states().items():
            repl.print_message(f"  {name}  {state}")
            for tool in tools:
                if tool.origin and redact_server_address(tool.origin.server) == name:
                    approval = "" if tool.needs_approval is False else "  (needs approval)"
                    repl.print_message(f"    {tool.name}  {get_first_line(tool.description)}{approval}")


def list_request_tools(tools: Sequence[Json]) -> list[tuple[str, str]]:
    """Return the name (or the type, where it has none) and the description of each tool of a request."""
    return [(str(tool.get("name") or tool.get("type")), str(tool.get("description") or "")) for tool in tools]


def get_first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


async def handle_usage(repl: Repl, _: str) -> None:
    from convo.chat.view_loader import load_path_index
    from convo.terminal.usage_views import format_session_usage

    links = await _load_own_links(repl)
    if links is None:
        return
    path_index = await load_path_index(repl.chat.deps.store, repl.chat.load_state().path, links)
    repl.print_message(format_session_usage(links, repl.context.settings.prices, path_index))


async def handle_cost(repl: Repl, _: str) -> None:
    from convo.chat.view_loader import load_handle_view
    from convo.cli.resolve import find_last_turn_links
    from convo.inspect.tree import find_branch_links
    from convo.prompt_cache.bill import build_bill
    from convo.terminal.usage_views import bill_lines, cost_lines

    links, prices = await _load_own_links(repl), repl.context.settings.prices
    if links is None:
        return
    view = await load_handle_view(repl.chat.deps.store, repl.chat.session.id, read_files=False)
    turn_links = find_last_turn_links(view, find_branch_links(view))
    repl.print_message("\n".join(f"  {line}" for line in cost_lines(links, turn_links, prices)))
    if not links:
        return
    rows = build_bill(replace(view, links=tuple(links), prices=prices), max_rows=MAX_COST_ROWS)
    if any(row.cost_usd for row in rows):
        display = detect_display_without_color(sys.stderr)
        repl.print_block("".join(f"{display.translate_box_chars(line)}\n" for line in bill_lines(rows, display)))


MAX_COST_ROWS = 5
"""The number of parts that /cost lists; `convo cost` can list all."""


async def _load_own_links(repl: Repl) -> Sequence[Link] | None:
    """Return the links of the session; None, and a message, if all items are from another one, as after /fork."""
    links, path = await repl.links.load_links(repl.chat), repl.chat.load_state().path
    if links or not path:
        return links
    items = format_count(len(path))
    repl.print_message(f"  no requests in {repl.chat.session.name} yet; its {items} were requested in another session")
    return None


async def handle_reasoning(repl: Repl, _: str) -> None:
    texts = list(iter_last_turn_reasoning(repl.chat.state.path.items))
    if not texts:
        repl.print_message("  no reasoning in the last turn; many models do not return it")
    for text in texts:
        repl.print_message("\n".join(f"  {line}".rstrip() for line in text.split("\n")))


CODE_BLOCK = re.compile(r"^(?P<fence>```+|~~~+)[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


async def handle_copy(repl: Repl, argument: str) -> None:
    if argument not in ("", "code"):
        raise InvalidUsage(f"/copy takes no argument or 'code', not {argument!r}", hint="/copy, or /copy code")
    answer = last_answer_text(repl.chat.load_state().path.items)
    if not answer:
        raise InvalidUsage("no answer to copy yet", hint="send a message")
    text = _find_last_code_block(answer) if argument else answer
    targets = [
        *(["the terminal"] if repl.send_control_sequence(build_osc52_sequence(text)) else []),
        *await copy_with_programs(text, os.environ),
    ]
    if not targets:
        raise InvalidUsage("no clipboard available", hint="install xclip or wl-clipboard, or use /export FILE")
    repl.print_message(f"copied {format_count(len(text), 'character')} ({', '.join(targets)})")


def _find_last_code_block(answer: str) -> str:
    """Return the last fenced block of an answer, without its fence. Raises InvalidUsage if there is none."""
    blocks = [match["code"] for match in CODE_BLOCK.finditer(answer)]
    if not blocks:
        raise InvalidUsage("the last answer has no code block", hint="/copy copies all of it")
    return blocks[-1]


CLEAR_SCREEN = "\x1b[H\x1b[2J"
"""Clears the screen; the scrollback stays."""


async def handle_new(repl: Repl, name: str) -> None:
    """Open a new conversation with the same strategy and model; nothing is stored before its first message."""
    chat = repl.chat
    if name:
        await check_session_name_free(chat.deps.store, name)
    new_chat = await open_chat(OwnerSelection(chat.session.strategy), None, chat.options, chat.deps, name=name)
    await _take_lease(repl, new_chat)
    await _release_lease(repl)
    repl.context.note_new_file(new_chat.session)
    repl.chat = new_chat
    repl.attachments.clear()
    repl.print_message("new conversation" + (f": {name}" if name else ""))


async def handle_clear(repl: Repl, name: str) -> None:
    repl.send_control_sequence(CLEAR_SCREEN)
    await handle_new(repl, name)


async def handle_resume(repl: Repl, handle: str) -> None:
    """Continue the conversation of `handle`; without one, the user chooses it, or they are listed."""
    store, now = repl.chat.deps.store, repl.chat.deps.clock.now()
    if not handle and not repl.can_pick:
        repl.print_block(await _render_recent_sessions(store, now) + "\n")
        return
    if not handle:
        from convo.cli.picker_entries import load_conversation_entries

        display = detect_display_without_color(sys.stderr)
        entries = await load_conversation_entries(
            store, now, display, is_own=True, open_session_id=repl.chat.session.id
        )
        if not entries.values:
            repl.print_message("  no other conversations yet; /new starts one")
            return
        chosen = await repl.pick(entries)
        if chosen is None:
            repl.print_message("nothing was changed")
            return
        handle = chosen
    previous_name = repl.chat.session.name
    chat = await _open_existing(repl, handle)
    await _take_lease(repl, chat)
    await _release_lease(repl)
    await chat.refresh()
    chat.load_state()
    repl.chat = chat
    repl.attachments.clear()
    saved = f"; {previous_name} is saved" if previous_name else ""
    repl.print_message(f"continuing {chat.session.name}, {format_count(len(chat.state.path))}{saved}")
    repl.show_last_turns()


async def _open_existing(repl: Repl, handle: str) -> Chat:
    """Open the conversation of a handle.

    Raises NotFound or InvalidUsage, and the errors of the lookup and of the endpoint.
    """
    store, context = repl.chat.deps.store, repl.context
    selection = select_owner((), handle, use_last_session=False)
    session = await find_selected_session(store, selection)
    if session and session.id == repl.chat.session.id:
        raise InvalidUsage(f"{session.name} is already open", hint="/resume, to list the others")
    if selection.replay_file and not session:
        check_replay_file_exists(selection.replay_file)
    if session:
        await check_no_open_run(store, session)
        if not context.options.run_flags.source and await store.agent_runs(session_id=session.id, limit=1):
            command = f"{get_command_prefix()} chat --from {quote(session.name)}"
            context.output.note(f"{session.name} used agents, and this chat does not; to use them: {command}")
    deps, options = await context.connect(session)
    return await open_chat(selection, session, options, deps)


async def _take_lease(repl: Repl, chat: Chat) -> None:
    """Take the lease of a chat that will replace the current one. Raises Busy."""
    chat.notify = repl.chat.notify
    await repl.context.acquire_lease(chat)


async def _release_lease(repl: Repl) -> None:
    if lease := repl.context.leases.pop(repl.chat.session.id, None):
        await lease.release()


MAX_RECENT_SESSIONS = 10
"""Sessions that /resume lists."""


async def _render_recent_sessions(store: Store, now: float) -> str:
    """Render the list of the sessions used last."""
    from convo.chat.conversation_list import ConversationQuery, list_conversations
    from convo.terminal.list_views import render_session_list

    rows = (await list_conversations(store, ConversationQuery(limit=MAX_RECENT_SESSIONS, is_own=True))).rows
    if not rows:
        return "  no conversations yet"
    table = render_session_list(rows, detect_display_without_color(sys.stderr), now)
    return f"{table}\n  /resume NAME continues one"


async def handle_rename(repl: Repl, name: str) -> None:
    if not name:
        raise InvalidUsage("/rename needs the new name", hint="/rename words-with-dashes")
    chat, old_name = repl.chat, repl.chat.session.name
    await check_session_name_free(chat.deps.store, name)
    session = replace(chat.session, name=name)
    if chat.record.is_saved:
        await chat.record.update_fields(session)
    else:
        chat.record.session = session
    repl.print_message(f"{old_name} renamed to {name}" if old_name else f"the conversation will be named {name}")


async def handle_export(repl: Repl, file_name: str) -> None:
    """Write the conversation to a new file; everything is checked before."""
    from convo.cli.export import (
        DEFAULT_EXPORT_SUFFIX,
        EXPORT_RENDERERS,
        FORMAT_BY_SUFFIX,
        ExportOptions,
        load_source_from_mirror,
        resolve_export_format,
        select_exported_parts,
        write_export,
    )
    from convo.cli.resolve import HandleResolver, LookupOptions
    from convo.transfer.export import load_exported_document

    chat, settings = repl.chat, repl.context.settings
    if not chat.load_state().path:
        raise InvalidUsage("the conversation is empty, so it cannot be exported", hint="send a message first")
    suffix = Path(file_name).suffix.lower()
    if suffix and suffix not in FORMAT_BY_SUFFIX:
        raise InvalidUsage(
            f"unknown file format {suffix}; /export accepts {', '.join(FORMAT_BY_SUFFIX)}",
            hint=f"/export {Path(file_name).with_suffix(DEFAULT_EXPORT_SUFFIX)}",
        )
    await chat.ensure_saved()
    file = _check_new_file(file_name or f"{chat.session.name}{DEFAULT_EXPORT_SUFFIX}", chat)
    options = ExportOptions(chat.session.id, file=file)
    export_format, store = resolve_export_format(options), chat.deps.store
    view = await HandleResolver(settings, store, LookupOptions(repl.context.options.config)).resolve(chat.session.id)
    source = await load_source_from_mirror(view, settings, store)
    document = await load_exported_document(source, view, export_format, store)
    document = select_exported_parts(document, export_format, options)
    write_export(EXPORT_RENDERERS[export_format](document, options), file)
    repl.print_message(f"exported {format_count(len(document.items))} to {file}")


def _check_new_file(name: str, chat: Chat) -> Path:
    """Return the path of the file. Raises InvalidUsage for an existing one."""
    file = Path(os.path.expanduser(name))
    if os.path.lexists(file):
        command = f"convo export {quote(chat.session.name)} -o {quote(str(file))} --force"
        raise InvalidUsage(f"{file} already exists", hint=f"choose another name, or {command}")
    return file


EDIT_PROMPT = "edit> "
"""The prompt at which the last message is edited."""


async def handle_undo(repl: Repl, _: str) -> None:
    _report_move(repl, await repl.undo_stack.undo(repl.chat), "undid")


async def handle_rewind(repl: Repl, text: str) -> None:
    number = _parse_turn_number(text, "/rewind") if text else None
    _report_move(repl, await repl.undo_stack.undo(repl.chat, number), "went back to before")


async def handle_redo(repl: Repl, _: str) -> None:
    _report_move(repl, await repl.undo_stack.redo(repl.chat), "redid")


async def handle_edit(repl: Repl, argument: str) -> None:
    """Send the last message again as edited; Ctrl-C and Ctrl-D at the prompt change nothing."""
    last_items = get_last_user_items(repl.chat)
    if not argument:
        with suppress(EOFError, Interrupted):
            argument = (await repl.read_line(EDIT_PROMPT, TypedMessage(item_text(last_items[-1])))).strip()
    if not argument:
        repl.print_message("nothing was changed")
        return
    content = last_items[-1].get("content")
    attached_parts = [part for part in content if part.get("type") != "input_text"] if isinstance(content, list) else []
    await repl.undo_stack.undo(repl.chat)
    await repl.show_answer(repl.chat.send([*last_items[:-1], user_message(argument, *attached_parts)]))


async def handle_fork(repl: Repl, text: str) -> None:
    number, chat = _parse_turn_number(text, "/fork") if text else None, repl.chat
    if not chat.load_state().path:
        raise InvalidUsage("the conversation is empty, so it cannot be forked", hint="send a message first")
    await chat.ensure_saved()  # a fork without a message of its own is not stored yet
    source = chat.session if number is None else await make_session_at_turn(chat.deps.store, chat.session, number)
    forked = await fork_session(source, chat.options, chat.deps)
    await _take_lease(repl, forked)
    repl.chat = forked
    count = format_count(len(forked.state.path))
    repl.print_message(f"continuing {forked.session.name}, {count}; {chat.session.name} is unchanged")


def _parse_turn_number(text: str, command: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidUsage(
            f"{command} takes a turn number, not {text!r}", hint=f"{command} 1, or {command} -1"
        ) from None


def _report_move(repl: Repl, before: TreePath, action: str) -> None:
    """Print the turn that the head moved over, and the number of items now; `before` is the old path."""
    after = repl.chat.state.path
    shared_depth = before.common_depth(after)
    moved_nodes = before.nodes[shared_depth:] if len(after) < len(before) else after.nodes[shared_depth:]
    first = next((node.item for node in moved_nodes if is_user_message(node.item)), None)
    description = f'"{item_preview(first)}"' if first else "the last turn"
    effect = f"continues after {format_count(len(after))}" if len(after) else "is the first one"
    repl.print_message(f"{action} {description}; the next message {effect}")


class SlashCommand(NamedTuple):
    """A slash command: `usage` shows its arguments, and `run` gets them as typed.

    argument_kind:  completed by Tab after the name: MODEL_ARGUMENT, HANDLE_ARGUMENT, OWNER_ARGUMENT,
                    EFFORT_ARGUMENT or FILE_ARGUMENT
    """

    usage: str
    help: str
    run: Callable[[Repl, str], Awaitable[None]]
    argument_kind: str = ""


MODEL_ARGUMENT, HANDLE_ARGUMENT, OWNER_ARGUMENT, EFFORT_ARGUMENT = "model", "handle", "owner", "effort"


async def handle_help(repl: Repl, _: str) -> None:
    rows = [(f"/{name} {command.usage}".strip(), command.help) for name, command in SLASH_COMMANDS.items()]
    await repl.print_long("".join(f"{line}\n" for line in render_help(rows, SLASH_COMMAND_ALIASES, repl.display.width)))


async def handle_exit(repl: Repl, _: str) -> None:
    repl.is_exiting = True


async def handle_status(repl: Repl, _: str) -> None:
    options = repl.chat.options
    fields = [*format_request_fields(options.parameters, options.field_sources), *options.ignored_settings]
    repl.print_message(format_status(repl.chat.session, repl.chat.load_state(), options.model, fields))
    _print_run_status(repl)


def _print_run_status(repl: Repl) -> None:
    if repl.agent_chat and repl.agent_chat.runner.chat.session.id == repl.chat.session.id:
        repl.print_message(f"  run         {repl.agent_chat.status}")


MAX_PREPENDED_ITEMS = 5
"""Items that the owner prepends to a request, of which /next shows the last."""


async def handle_next(repl: Repl, text: str) -> None:
    from convo.chat.next_request import build_next_request
    from convo.chat.view_loader import load_response_view
    from convo.terminal.inspect_view import render_next_request

    chat, items = repl.chat, [user_message(text)] if text else []
    options, endpoint, request_input, input_path = await repl.prepare_next_request(items)
    last_link = chat.record.last_link
    next_request = await build_next_request(
        chat.session.name,
        chat.load_state(),
        items,
        options,
        endpoint,
        repl.choose_token_counter(endpoint),
        windows=repl.context.settings.windows,
        request_input=request_input,
        previous_instructions=chat.session.instructions,
        cache_options=options.build_comparison(last_link, endpoint.scope),
        input_path=input_path,
        last_link=last_link,
        earlier=await load_response_view(chat.deps.store, last_link.id, is_branch_only=True) if last_link else None,
        planned_at=chat.deps.clock.now(),
    )
    text = render_next_request(
        next_request,
        detect_display_without_color(sys.stderr),
        max_prepended=MAX_PREPENDED_ITEMS,
        compact_command="/compact",
    )
    await repl.print_long(f"{text}\n")


async def handle_context(repl: Repl, _: str) -> None:
    """Show the context window by part; during a pause without the parts that the agents add."""
    from convo.terminal.usage_views import context_meter_lines

    model, usage = await repl.measure_context()
    repl.counts_tokens = True
    display = detect_display_without_color(sys.stderr)
    lines = [f"  {model}", *context_meter_lines(usage, model, display)]
    repl.print_block(display.translate_box_chars("\n".join(lines)) + "\n")


async def handle_inspect(repl: Repl, handle: str) -> None:
    from convo.cli.resolve import render_handle

    chat = repl.chat
    if not handle:
        if not chat.load_state().path:
            repl.print_message("  empty; a conversation is stored with its first message")
            return
        await chat.ensure_saved()  # a fork without a message of its own is not stored yet
    await repl.print_long(await render_handle(chat.deps.store, handle or chat.session.id) + "\n")


async def handle_model(repl: Repl, name: str) -> None:
    """Use another model from the next turn on; without a name the user chooses one, or the current one is shown."""
    chat = repl.chat
    if not name and repl.can_pick:
        from convo.cli.picker_entries import add_server_models, load_model_entries

        store, settings, choice = chat.deps.store, repl.context.settings, repl.context.choice
        entries = await load_model_entries(store, settings, chat.options.model)
        if choice:
            entries = add_server_models(entries, store, settings, choice.provider, chat.options.model)
        name = await repl.pick(entries) or ""
    elif not name:
        repl.print_message("/model NAME changes the model; convo models known lists windows and prices")
    if name:
        instructions = chat.options.instructions
        chat.deps, options = await repl.context.connect(chat.session, model=name)
        chat.options = replace(options, instructions=instructions)
        if repl.agent_chat:
            repl.agent_chat.presenter.warn_of_instructions()
    repl.print_message(f"model {chat.options.model}")


async def handle_effort(repl: Repl, effort: str) -> None:
    if effort:
        _change_effort(repl, None if effort == EFFORT_OF_SETTINGS else effort)
    else:
        repl.print_message(f"/effort VALUE changes the reasoning effort: {', '.join(REASONING_EFFORTS)}")
    options = repl.chat.options
    fields = format_request_fields(options.parameters, options.field_sources)
    unset = options.ignored_settings[0] if options.ignored_settings else "no effort is sent"
    line = next((line for line in fields if line.startswith(f"{EFFORT_FIELD} ")), unset)
    updates = apply_configuration_items({}, find_configuration_items(repl.chat.state.path.items))
    held, is_set = get_request_field(updates, EFFORT_FIELD), get_request_field(options.parameters, EFFORT_FIELD)
    if held and (is_set is None or EFFORT_FIELD in options.field_sources):
        line = f"{EFFORT_FIELD} {held}  (by a configuration_update of the history)"
    repl.print_message(line)


def _change_effort(repl: Repl, effort: str | None) -> None:
    """Use another reasoning effort from the next turn on, also with other models; None: that of the settings.

    Raises InvalidUsage for an effort that the API does not know, Unsupported for a model that has none.
    """
    chat, context, choice = repl.chat, repl.context, repl.context.choice
    assert choice
    if effort is not None and effort not in REASONING_EFFORTS:
        raise InvalidUsage(
            f"no reasoning effort {effort!r}; the API has {', '.join(REASONING_EFFORTS)}",
            hint=f"/effort {find_similar_effort(effort)}",
        )
    if effort not in (None, "none") and lacks_reasoning_effort(choice.name.model, choice.provider.api):
        raise UnsupportedValue(
            chat.options.model, "a reasoning effort", param=EFFORT_FIELD, hint="choose another model with /model"
        )
    context.chat_effort = effort
    options = context.make_request_options(choice, None)
    chat.options = replace(
        chat.options,
        parameters=options.parameters,
        field_sources=options.field_sources,
        ignored_settings=options.ignored_settings,
    )


async def handle_owner(repl: Repl, name: str) -> None:
    """Convert the conversation to another strategy, or show its own."""
    if not name:
        await handle_status(repl, "")
        return
    from convo.cli.convert import render_owner_change
    from convo.transfer.convert import convert_chat

    if name not in list(Strategy):
        raise InvalidUsage(f"no owner {name!r}", hint=f"one of {', '.join(Strategy)}")
    converted, plan = await convert_chat(repl.chat, Strategy(name))
    await _take_lease(repl, converted)
    repl.chat = converted
    repl.print_message(render_owner_change(converted, plan))
    _print_run_status(repl)


async def handle_compact(repl: Repl, text: str) -> None:
    from convo.cli.auto_compaction import compact_open_chat

    async with repl.waiting_line.show("compacting"):
        report = await compact_open_chat(repl.chat, text)
    repl.counts_tokens = True
    repl.print_message(report)


async def handle_retry(repl: Repl, _: str) -> None:
    await (repl.agent_chat.retry() if repl.agent_chat else repl.show_answer(repl.chat.retry()))


async def handle_agent(repl: Repl, name: str) -> None:
    if not repl.agent_chat:
        raise InvalidUsage("this chat has no agents", hint=f"{get_command_prefix()} chat --agent FILE.py:NAME")
    for line in await repl.agent_chat.list_agents(name):
        repl.print_message(line)


async def handle_stop(repl: Repl, _: str) -> None:
    if not repl.agent_chat:
        raise InvalidUsage("no run is open: this chat has no agents", hint="Ctrl-C stops an answer")
    await repl.agent_chat.stop()


SLASH_COMMANDS = {
    "help": SlashCommand("", "show this help", handle_help),
    "status": SlashCommand("", "show the owner, the handle and the number of unconfirmed items", handle_status),
    "next": SlashCommand(
        "[TEXT]", "show the exact body of the next request, and the items that the server prepends", handle_next
    ),
    "context": SlashCommand("", "show how much of the context window each part uses", handle_context),
    "usage": SlashCommand("", "show the tokens of the last request and of the session", handle_usage),
    "cost": SlashCommand("", "show the cost of the session", handle_cost),
    "reasoning": SlashCommand("", "show the reasoning of the last turn", handle_reasoning),
    "inspect": SlashCommand("[HANDLE]", "show the conversation as a tree", handle_inspect, HANDLE_ARGUMENT),
    "model": SlashCommand("[NAME]", "choose another model from a list, or use NAME", handle_model, MODEL_ARGUMENT),
    "effort": SlashCommand(
        "[VALUE]",
        "show or change the reasoning effort; - restores the value of the settings",
        handle_effort,
        EFFORT_ARGUMENT,
    ),
    "agent": SlashCommand("[NAME]", "list the agents, or choose the one that answers next", handle_agent),
    "system": SlashCommand("[TEXT]", "show or change the instructions; - removes them", handle_system),
    "tools": SlashCommand("", "list the tools that every request offers to the model", handle_tools),
    "mcp": SlashCommand("", "list the MCP servers and their tools", handle_mcp),
    "attach": SlashCommand(
        "[FILE...]", "attach files to the next message, or list the attachments", handle_attach, FILE_ARGUMENT
    ),
    "detach": SlashCommand("[FILE...]", "remove these attachments, or all", handle_detach, FILE_ARGUMENT),
    "owner": SlashCommand(
        "[OWNER]", "show or change the owner: replay, session, conversation or chain", handle_owner, OWNER_ARGUMENT
    ),
    "compact": SlashCommand(
        "[FOCUS] [--keep-last N]", "compact the conversation to fit a smaller context", handle_compact
    ),
    "retry": SlashCommand("", "send the last message again, or continue an interrupted run", handle_retry),
    "stop": SlashCommand("", "end the open agent run; it cannot be resumed", handle_stop),
    "edit": SlashCommand("[TEXT]", "edit the last message and send it again", handle_edit),
    "undo": SlashCommand("", "undo the last turn", handle_undo),
    "redo": SlashCommand("", "redo the last undone turn", handle_redo),
    "rewind": SlashCommand("[N]", "go back to the end of turn N; without N, undo the last turn", handle_rewind),
    "fork": SlashCommand("[N]", "continue in a new session, from here or from the end of turn N", handle_fork),
    "new": SlashCommand("[NAME]", "start a new conversation; this one is saved", handle_new),
    "clear": SlashCommand("[NAME]", "clear the screen and start a new conversation", handle_clear),
    "resume": SlashCommand(
        "[HANDLE]", "continue another conversation: HANDLE, or one from a list", handle_resume, HANDLE_ARGUMENT
    ),
    "rename": SlashCommand("NAME", "rename the conversation", handle_rename),
    "export": SlashCommand(
        "[FILE]",
        "export the conversation; the suffix gives the format: .md, .html, .json, .jsonl",
        handle_export,
        FILE_ARGUMENT,
    ),
    "copy": SlashCommand("[code]", "copy the last answer, or its last code block, to the clipboard", handle_copy),
    "exit": SlashCommand("", "exit the chat, as Ctrl-D does", handle_exit),
}

SLASH_COMMAND_ALIASES = {
    "quit": "exit",
    "q": "exit",
    "bye": "exit",
    "?": "help",
    "branch": "fork",
    "back": "undo",
    "regenerate": "retry",
    "sessions": "resume",
    "load": "resume",
    "switch": "resume",
    "save": "export",
    "title": "rename",
    "name": "rename",
    "reset": "clear",
    "tokens": "usage",
    "instructions": "system",
    "file": "attach",
    "compress": "compact",
}
"""Names of these commands in other chat programs."""


def get_argument_kind(name: str) -> str:
    """Return the kind of a command's argument, by name; "" if it cannot be completed."""
    command = SLASH_COMMANDS.get(SLASH_COMMAND_ALIASES.get(name, name))
    return command.argument_kind if command else ""


def parse_slash_command(line: str) -> tuple[str, str]:
    """Split `line` into the command's name and its arguments. Raises InvalidUsage for an unknown command."""
    typed_name, arguments = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = SLASH_COMMAND_ALIASES.get(typed_name.lower(), typed_name.lower())
    if name not in SLASH_COMMANDS:
        closest = find_closest_word(name, [*SLASH_COMMANDS, *SLASH_COMMAND_ALIASES], cutoff=0.65)
        suggestion = f"/{closest}" if closest else "/help"
        raise InvalidUsage(
            f"unknown command '/{typed_name}'; nothing was sent",
            hint=f"{suggestion}, or //{typed_name} to send it as a message",
        )
    return name, arguments.strip()


async def run_prompt_command(repl: Repl, line: str) -> None:
    """Run a slash command or, after "!", a shell command.

    Raises the errors of `parse_slash_command` and of the command.
    """
    if line.startswith("!"):
        await run_shell_line(repl, line)
        return
    name, arguments = parse_slash_command(line.strip())
    if repl.agent_chat:
        await repl.agent_chat.check_command(name)
    await SLASH_COMMANDS[name].run(repl, arguments)


MAX_OUTPUT_CHARS = 100_000
"""Characters of a command's output that a message includes."""

SHELL_READ_BYTES = 65_536

INTERRUPT_EXIT_CODES = (-signal.SIGINT, 128 + signal.SIGINT)
"""Exit codes of an interrupted command; its output is not attached."""


async def run_shell_line(repl: Repl, line: str) -> None:
    """Run `line`, which begins with "!" or "!!", in the shell.

    Raises InvalidUsage if it was pasted, or if it has no command.
    """
    if any(text.startswith("!") and line.startswith(text) for text in repl.reader.pasted_texts):
        raise InvalidUsage(
            "a pasted ! command is not run", hint="type it, or put a space before it to send it as a message"
        )
    is_attached = line.startswith("!!")
    command = line.lstrip("!").strip()
    if not command:
        raise InvalidUsage(
            "no command after the !", hint="!ls shows its output; !!ls also attaches it to the next message"
        )
    with on_signal(signal.SIGINT, ignore_signal), repl.reader.release_terminal():  # the command receives Ctrl-C itself
        output, code = await (_run_captured(repl, command) if is_attached else _run_uncaptured(command))
    if code:
        repl.print_message(format_exit(code))
    if is_attached and code not in INTERRUPT_EXIT_CODES:
        repl.attachments.append((f"!{command}", _make_output_part(command, output, code)))
        repl.print_message("attached to the next message; /detach removes it")


async def _run_uncaptured(command: str) -> tuple[str, int]:
    process = await _start_shell(command)
    return "", await process.wait()


async def _run_captured(repl: Repl, command: str) -> tuple[str, int]:
    process = await _start_shell(command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT)
    assert process.stdout
    pieces: list[bytes] = []
    while piece := await process.stdout.read(SHELL_READ_BYTES):
        pieces.append(piece)
        repl.print_block(piece.decode("utf-8", "replace"))
    output = b"".join(pieces).decode("utf-8", "replace")
    if output and not output.endswith("\n"):
        repl.print_block("\n")
    return output, await process.wait()


async def _start_shell(
    command: str, *, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> Process:
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        return await asyncio.create_subprocess_exec(shell, "-c", command, stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as error:
        raise InvalidUsage(
            f"the shell {shell} cannot be started: {format_os_error(error)}", hint="set SHELL to the path of a shell"
        ) from error


def _make_output_part(command: str, output: str, exit_code: int) -> dict[str, Json]:
    """Make a content part from a command and its output."""
    ending = f"\n{format_exit(exit_code)}" if exit_code else ""
    return {"type": "input_text", "text": f"$ {command}\n{_shorten_output(output.rstrip())}{ending}"}


def _shorten_output(output: str) -> str:
    """Keep both ends of an output that is longer than `MAX_OUTPUT_CHARS`."""
    if len(output) <= MAX_OUTPUT_CHARS:
        return output
    omitted = len(output) - MAX_OUTPUT_CHARS
    return f"{output[: MAX_OUTPUT_CHARS // 2]}\n[{omitted:,} characters left out]\n{output[-MAX_OUTPUT_CHARS // 2 :]}"


def format_exit(exit_code: int) -> str:
    return f"(ended by signal {-exit_code})" if exit_code < 0 else f"(exit code {exit_code})"


KEY_HELP = (
    ("//text", "send a message that begins with a slash"),
    ("@FILE", "in a message: attach the file; the names are listed while you type"),
    ("!command", "run a shell command; !!command attaches its output to the next message"),
    ("Ctrl-J, Esc Enter", "insert a line break; Enter sends"),
    ("Esc, Ctrl-C", "stop an answer; its text so far is saved, and no queued message is sent"),
    ("Enter, Up", "during an answer: queue the typed message; edit the last queued one"),
    ("Esc Esc", "at an empty prompt: edit the last message"),
    ("Ctrl-R", "search the prompt history"),
    ("Ctrl-X Ctrl-E", "edit the message in $EDITOR"),
    ("/", "list the commands; Up and Down select one, Esc closes the list"),
    ("Tab", "complete commands, models, handles and files"),
    ("in a list", "type to search; Up, Down, PageUp, PageDown select, Enter chooses, Esc cancels"),
)

MIN_DESCRIPTION_COLUMNS = 20


def render_help(rows: Sequence[tuple[str, str]], aliases: Mapping[str, str], width: int | None) -> Iterator[str]:
    """Yield the lines of /help; `width` None, for a file, wraps nothing."""
    import textwrap  # needed by /help only

    entries = [*rows, *KEY_HELP]
    name_width = max(len(name) for name, _ in entries)
    for name, description in entries:
        if width is None:
            yield f"  {name:<{name_width}}  {description}"
        else:
            is_narrow = width < name_width + 5 + MIN_DESCRIPTION_COLUMNS
            indent = " " * (6 if is_narrow else name_width + 4)
            lines = textwrap.wrap(description, width - 1, initial_indent=indent, subsequent_indent=indent)
            if is_narrow:  # the terminal would break a table inside words
                yield f"  {name}"
            else:
                lines[0] = f"  {name:<{name_width}}  {lines[0].strip()}"
            yield from lines
    yield from textwrap.wrap(
        f"aliases: {'; '.join(_format_aliases(aliases))}",
        (width or 10_000) - 1,
        initial_indent="  ",
        subsequent_indent="    ",
    )


def _format_aliases(aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield each command with its aliases."""
    for name in dict.fromkeys(aliases.values()):
        yield " ".join([f"/{name}", "=", *(f"/{alias}" for alias, command in aliases.items() if command == name)])
