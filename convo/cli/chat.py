"""`convo chat`: one turn, or an interactive chat.

Options come in four groups: strategy, request, agent runs, output.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from shlex import quote
from typing import TYPE_CHECKING

from convo.chat.conversation import Chat
from convo.chat.files import load_attachment
from convo.chat.open import check_no_open_run
from convo.cli.context import ChatContext, ChatOptions, ChatOutput, get_turn_link, open_prompt_reader
from convo.cli.deps import load_agents, open_configured_store
from convo.cli.output import print_event, print_json
from convo.cli.run_options import choose_input
from convo.config.loader import AGENT_MODEL_SOURCE, SettingFlags, load_settings
from convo.config.settings import Settings
from convo.config.storage import get_store_url
from convo.errors import ConvoError, EndpointFault, Interrupted, InvalidUsage, NotFound
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.records import EMBEDDED_SCOPE, Strategy
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.strategies.selection import is_file_handle
from convo.terminal.answer import AnswerPrinter, consume_interruptibly
from convo.terminal.terminal import detect_display, detect_display_without_color

if TYPE_CHECKING:
    from convo.cli.agent_options import AgentSetup
    from convo.cli.agent_run import RunPresenter


EXIT_CODE_BY_STATUS = {"completed": 0, "cancelled": 130}
"""Exit codes by the status of the turn; every other status is a failure."""


JSON_NEEDS_MESSAGE, JSON_MESSAGE_HINT = "--json and --jsonl need a message", 'convo chat --json "..."'


async def run_chat(options: ChatOptions, output: ChatOutput) -> int:
    """Run one `convo chat` and return the exit code."""
    attachment_parts = [load_attachment(path) for path in options.attachments]
    prompt = options.prompt
    if options.run_flags.run_config and not (prompt or "").strip():
        prompt = None  # an empty pipe is no message where the input may be in --run-config
    message = build_first_message(prompt, attachment_parts)
    needs_message = message is None and (output.as_json or output.as_jsonl)
    if needs_message and options.run_flags.run_config is None:
        raise InvalidUsage(JSON_NEEDS_MESSAGE, hint=JSON_MESSAGE_HINT)
    if options.run_flags.state is not None:
        from convo.chat.state_file import check_state_path

        # Otherwise a chat would reach its pause before it reports a missing folder.
        check_state_path(options.run_flags.state)
    setup = await load_agents(options.run_flags)
    items = choose_input(message, setup.input_items if setup else ())
    if needs_message and not items:
        raise InvalidUsage(JSON_NEEDS_MESSAGE, hint=JSON_MESSAGE_HINT)
    model = setup.model if setup and options.model is None else options.model
    settings = _load_chat_settings(options, model, output)
    if model is None and not (options.is_continued or output.quiet or output.as_json or output.as_jsonl):
        from convo.cli.local_server_offer import offer_local_server

        if await offer_local_server(settings, options.config):
            settings = _load_chat_settings(options, model, output)
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        if options.is_picked:
            options = options._replace(handle=await pick_conversation(store, settings, options))
        context = ChatContext(settings, store, exit_stack, options, output)
        if options.is_continued:
            run_flags, stored_model = await context.add_stored_options()
            run_flags.validate(instructions=options.instructions, schema_file=options.schema_file)
            if run_flags != options.run_flags:
                options = options._replace(model=stored_model, run_flags=run_flags)
                setup = await load_agents(run_flags)
                model = setup.model if setup and options.model is None else options.model
                context = ChatContext(
                    load_settings(options.config, _make_setting_flags(options, model)),
                    store,
                    exit_stack,
                    options,
                    output,
                )
        if setup:
            async with output.waiting_line.show("starting"):
                setup = await setup.connect(settings, exit_stack)
        chat = await context.open(is_asked_at_once=bool(items))
        presenter = await open_run_presenter(chat, setup, context, output, options) if setup else None
        if chat.record.is_saved and not presenter:
            await check_no_open_run(store, chat.session)
        if not items:
            return await run_interactive_chat(
                chat, list(zip(options.attachments, attachment_parts, strict=True)), context, output, presenter
            )
        if presenter:
            from convo.cli.agent_run import run_single_message

            return await run_single_message(presenter, items, output)
        assert message
        return await run_single_turn(chat, message, context, output)


async def pick_conversation(store: Store, settings: Settings, options: ChatOptions) -> str:
    """Let the user choose a stored conversation and return its handle.

    Raises Interrupted if the user cancelled, NotFound if there is none, InvalidUsage for the setting editing = "plain".
    """
    from convo.terminal.prompt import PICK_HINT, can_draw_prompt

    if not can_draw_prompt(settings.editing):
        raise InvalidUsage('--pick cannot be used with the setting editing = "plain"', hint=PICK_HINT)
    from convo.cli.picker_entries import load_conversation_entries
    from convo.terminal.line_editor import pick_before_chat

    display = detect_display_without_color(sys.stderr)
    entries = await load_conversation_entries(store, SystemClock().now(), display, owners=options.strategies)
    if not entries.values:
        owner = f" --{options.strategies[0]}" if options.strategies else ""
        raise NotFound("stored conversation for", f"--pick{owner}", hint=f'convo chat{owner} "hello"')
    handle = await pick_before_chat(entries)
    if handle is None:
        raise Interrupted("no conversation was chosen")
    return handle


def _load_chat_settings(options: ChatOptions, model: str | None, output: ChatOutput) -> Settings:
    """Load the settings, with a store in memory if a replay chat cannot write the configured one."""
    from convo.stores.factory import is_store_writable

    settings = load_settings(options.config, _make_setting_flags(options, model))
    is_replayed = options.strategies == (Strategy.REPLAY,) or (
        options.handle is not None and is_file_handle(options.handle) and not options.strategies
    )
    storage = settings.storage
    if not is_replayed or storage.type == "none" or is_store_writable(get_store_url(storage)):
        return settings
    output.note(f"{storage} cannot be written; only the file of the conversation is saved")
    return load_settings(options.config, _make_setting_flags(options, model)._replace(store="memory"))


def _make_setting_flags(options: ChatOptions, model: str | None) -> SettingFlags:
    return SettingFlags(
        model=model,
        model_source=AGENT_MODEL_SOURCE if options.model is None else options.model_source,
        strict_prefix=options.strict_prefix,
        keep_prefix=options.keep_prefix,
    )


async def open_run_presenter(
    chat: Chat, setup: "AgentSetup", context: ChatContext, output: ChatOutput, options: ChatOptions
) -> "RunPresenter":
    """Open the presenter for runs of the agents. Raises the errors of `AgentRunner.open`."""
    from convo.cli.agent_run import RunPresenter

    setup = setup.without_agent_models() if options.model else setup.with_route(context.make_route)
    return await RunPresenter.open(chat, setup, context, output, options.run_flags.state)


def build_first_message(prompt: str | None, attachment_parts: Sequence[Json]) -> Item | None:
    """Build the message of a one-shot chat; None for an interactive chat.

    attachment_parts:  content parts to add to the message

    Raises InvalidUsage for an empty message.
    """
    if prompt is None:
        return None
    if not prompt.strip() and not attachment_parts:
        raise InvalidUsage("the message is empty", hint="repeat the command with a message in quotes")
    return user_message(prompt, *attachment_parts)


def note_mentioned_files(text: str, attachments: Sequence[str], output: ChatOutput) -> None:
    """Print a notice for each file that a one-shot message mentions as @FILE: only a prompt attaches it."""
    if "@" not in text:
        return
    from convo.terminal.attachments import describe_missing_files, list_mentioned_files

    for name in list_mentioned_files(text):
        if name not in attachments:
            output.note(f"@{name} is sent as text; to attach the file: -a {quote(name)}")
    for line in describe_missing_files(text):
        output.note(line)


async def run_interactive_chat(
    chat: Chat,
    attachments: Sequence[tuple[str, dict[str, Json]]],
    context: ChatContext,
    output: ChatOutput,
    presenter: "RunPresenter | None" = None,
) -> int:
    """Run the prompt, and print at the end how to continue the conversation."""
    from convo.cli.repl import AgentChat, Repl
    from convo.cli.slash_commands import run_prompt_command
    from convo.terminal.prompt import PromptOptions, Suggestion
    from convo.terminal.status_line import StatusLine

    async def complete(text_before_cursor: str) -> tuple[int, Sequence[Suggestion]]:
        from convo.cli.prompt_completion import ReplCompleter  # the first Tab needs it

        return await ReplCompleter(chat.deps.store, context.settings).complete(text_before_cursor)

    status_line = None if output.quiet else StatusLine()
    reader = open_prompt_reader(
        PromptOptions(
            context.prompt_history_file,
            complete,
            context.settings.editing,
            status_line.render if status_line else None,
            output.waiting_line.refresh_footer,
        )
    )
    output.waiting_line.footer.render = reader.queue.render
    output.waiting_line.is_enabled &= not reader.has_echo  # a frame would erase typed text
    output.waiting_line.stop_key = "Esc"
    repl = Repl(chat, reader, context, run_prompt_command, attachments=attachments, status_line=status_line)
    owner = chat.state.owner
    is_in_store = not owner.uses_file and (not owner.is_server_side or chat.session.scope == EMBEDDED_SCOPE)
    saved_text = "not saved" if is_in_store and context.is_store_ephemeral else owner.storage_description
    repl.print_first_message(f"{chat.options.model}, {saved_text}. Type /help for commands.")
    if presenter:
        presenter.omit_pending_calls()
        repl.agent_chat = AgentChat(repl, presenter, detect_display(sys.stderr, os.environ))
    code = await repl.run()
    continue_command = await context.make_continue_command(repl.chat)
    if continue_command:
        output.note(f"continue: {continue_command}")
    return code


async def run_single_turn(chat: Chat, message: Item, context: ChatContext, output: ChatOutput) -> int:
    """Run one turn and return the exit code for its status. Raises the errors of the turn."""
    printer = AnswerPrinter(
        sys.stdout,
        sys.stderr,
        is_streamed=output.is_streamed,
        renderer=context.get_answer_renderer(),
        format_reasoning=context.get_reasoning_formatter(),
        waiting_line=output.waiting_line,
    )
    chat.notify = output.note
    handle_event = print_event if output.as_jsonl else ignore_event if output.as_json else printer.print_event
    try:
        async with output.waiting_line.show("starting"):
            await context.load_model(chat)  # a missing model fails before anything is stored
        await context.compact_if_needed(chat)
        async with output.waiting_line.show("waiting", is_allowed=lambda: printer.is_at_line_start):
            await consume_interruptibly(chat.send([message], keep_on_failure=False), handle_event)
    except Interrupted as interrupted:
        if output.as_jsonl or not get_turn_link(chat):
            raise
        output.note(interrupted.message)
    except ConvoError as failure:
        continue_command = await context.make_continue_command(chat)
        if isinstance(failure, EndpointFault) and failure.prompt_hint and continue_command:
            failure.replace_hint(f"{continue_command}, then: {failure.prompt_hint}")
        elif chat.record.is_saved:
            failure.replace_hint(failure.hint.replace("HANDLE", quote(chat.session.name)))
        raise
    finally:
        printer.finish()
        if get_turn_link(chat) and not output.as_json:
            context.print_receipt(chat)
    link = get_turn_link(chat)
    assert link
    if output.as_json:
        from convo.cli.turn_report import build_turn_report  # slow to import

        print_json(build_turn_report(chat, link, context.settings.prices))
    return EXIT_CODE_BY_STATUS.get(link.status, 1)


def ignore_event(event: StreamEvent) -> None:
    """Print nothing before the end."""
