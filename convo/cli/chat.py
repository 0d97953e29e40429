"""`convo chat`: one turn, or an interactive chat.

Options come in four groups: strategy, request, agent runs, output.
"""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from convo.chat.conversation import Chat
from convo.chat.files import load_attachment
from convo.cli.context import ChatContext, ChatOptions, ChatOutput, get_turn_link
from convo.cli.deps import get_store_url, open_configured_store
from convo.cli.repl import ReplController
from convo.cli.repl_actions import check_no_open_run
from convo.config.loader import SettingFlags, SettingsInputs, read_settings_inputs, resolve_settings
from convo.errors import ConvoError, Interrupted, InvalidUsage
from convo.history.items import Item, Json, StreamEvent, item_text, item_type, user_message
from convo.history.records import STRATEGY_INFO, Link, Strategy
from convo.strategies.state import owner_of_handle
from convo.terminal.answer import consume_interruptibly
from convo.terminal.terminal import AnswerPrinter

if TYPE_CHECKING:
    from convo.cli.agent_options import AgentSetup
    from convo.cli.agent_run import RunPresenter


EXIT_CODE_BY_STATUS = {"completed": 0, "cancelled": 130}
"""Exit codes by the status of the turn; every other status is a failure."""

SLASH_COMMAND_PATTERN = re.compile(r"(?<!\S)/(next|retry|status|undo)\b")
"""Slash commands in a hint, which can only be typed at the prompt of a chat."""


async def run_chat(asked: ChatOptions, out: ChatOutput) -> int:
    """Run one `convo chat` and return the exit code."""
    along = [load_attachment(place) for place in asked.attach]
    said = build_first_message(asked.prompt, along)
    if said is None and (out.as_json or out.as_jsonl):
        raise InvalidUsage("--json and --jsonl are about one turn", hint='convo chat --json "..."')
    cast = _load_agents(asked)
    sources = _read_chat_settings(asked, cast.model if cast and asked.model is None else asked.model, out)
    async with open_configured_store(resolve_settings(sources)) as store, AsyncExitStack() as open_things:
        desk = ReplController(sources, store, open_things, asked, out)
        if asked.continues and not asked.run.agent:
            again = await _with_previous_agents(desk, asked, out)
            if again is not asked:
                asked, cast = again, _load_agents(again)
                model = cast.model if cast and asked.model is None else asked.model
                desk = ReplController(
                    read_settings_inputs(asked.config, SettingFlags(model=model)), store, open_things, asked, out
                )
        chat = await desk.open()
        show = await open_run_presenter(chat, cast, desk, out, asked) if cast else None
        if not show:
            await check_no_open_run(store, chat.session)
        if said is None:
            return await run_interactive_chat(chat, list(zip(asked.attach, along, strict=True)), desk, out, show)
        if show:
            from convo.cli.agent_run import run_single_message

            return await run_single_message(show, said, out)
        return await run_single_turn(chat, said, desk, out)


def _read_chat_settings(asked: ChatOptions, model: str | None, out: ChatOutput) -> SettingsInputs:
    """Read the inputs of the settings, with a store in memory if a replay chat cannot write the configured one."""
    from convo.stores.factory import is_store_writable

    sources = read_settings_inputs(asked.config, SettingFlags(model=model))
    is_replayed = asked.strategies == (Strategy.REPLAY,) or (
        asked.handle is not None and owner_of_handle(asked.handle) is Strategy.REPLAY and not asked.strategies
    )
    storage = resolve_settings(sources).storage
    if not is_replayed or storage.type == "none" or is_store_writable(get_store_url(storage)):
        return sources
    out.note(f"{storage} cannot be written: only the file of the conversation is saved")
    return read_settings_inputs(asked.config, SettingFlags(model=model, store="memory"))


def _load_agents(asked: ChatOptions) -> "AgentSetup | None":
    """Load the agents that --agent names; None without agents. Raises the errors of `load_agent_setup`."""
    if not asked.agents:
        return None
    from convo.chat.state_file import check_state_path
    from convo.cli.agent_options import load_agent_setup

    if asked.run.state is not None:
        check_state_path(asked.run.state)
    return load_agent_setup(asked.run)


async def _with_previous_agents(desk: ChatContext, asked: ChatOptions, out: ChatOutput) -> ChatOptions:
    """Return `options` with the previous agents, and -m, of the session.

    Raises InvalidUsage for flags that do not fit them.
    """
    found = await desk.agents_before()
    if found is not None:
        out.note(f"agents as before: {found.file}")
        model = found.model if asked.model is None else asked.model
        asked = replace(asked, model=model, run=replace(asked.run, agent=found.file))
    asked.run.check(system=asked.system, schema=asked.schema)
    return asked


async def open_run_presenter(
    chat: Chat, cast: "AgentSetup", desk: ChatContext, out: ChatOutput, asked: ChatOptions
) -> "RunPresenter":
    """Open the presenter for runs of the agents. Raises the errors of `AgentRunner.open`."""
    from convo.cli.agent_run import RunPresenter

    cast = cast.asked_alike() if asked.model else cast.routed(desk.route)
    return await RunPresenter.open(chat, cast, desk, out, asked.run.state)


def build_first_message(prompt: str | None, along: Sequence[Json]) -> Item | None:
    """Build the message of a one-shot chat; None for an interactive chat.

    attachment_parts:  content parts to add to the message

    Raises InvalidUsage for an empty message.
    """
    if prompt is None:
        return None
    if not prompt.strip() and not along:
        raise InvalidUsage("there is nothing to send: the message is empty", hint='convo chat "..."')
    return user_message(prompt, *along)


async def run_interactive_chat(
    chat: Chat,
    along: Sequence[tuple[str, dict[str, Json]]],
    desk: ReplController,
    out: ChatOutput,
    show: "RunPresenter | None" = None,
) -> int:
    """Run the prompt, and print at the end how to continue the conversation."""
    from convo.terminal.prompt import PromptOptions, make_prompt_reader
    from convo.terminal.repl import Repl
    from convo.terminal.status_line import StatusLine

    bar = None if out.quiet else StatusLine()
    reader = make_prompt_reader(PromptOptions(desk.prompts, desk.suggest, desk.editing, bar.line if bar else None))
    talking = Repl(
        chat,
        reader,
        desk,
        out=sys.stdout,
        err=sys.stderr,
        along=along,
        live=out.live,
        quiet=out.quiet,
        bar=bar,
        sheet=desk.sheet(),
        folded=desk.folded(),
    )
    owner = STRATEGY_INFO[chat.session.strategy].words
    talking.note(f"{chat.asking.model}, held by {owner}; /help lists what else can be typed")
    if show:
        from convo.terminal.agent_chat import AgentChat
        from convo.terminal.terminal import detect_display_without_color

        talking.runs, desk.show = AgentChat(talking, show, detect_display_without_color(sys.stderr)), show
    code = await talking.run()
    back = await desk.way_back(talking.chat)
    if back:
        out.note(f"come back: {back}")
    return code


async def run_single_turn(chat: Chat, said: Item, desk: ChatContext, out: ChatOutput) -> int:
    """Run one turn and return the exit code for its status. Raises the errors of the turn."""
    printer = AnswerPrinter(sys.stdout, sys.stderr, live=out.live, sheet=desk.sheet(), folded=desk.folded())
    chat.noted = out.note
    take = print_event_line if out.as_jsonl else ignore_event if out.as_json else printer.take
    try:
        await chat.edges.endpoint.warm(chat.asking.wire_model)  # a missing model fails before anything is stored
        await desk.prepare(chat)
        await consume_interruptibly(chat.say([said], keep=False), take)
    except Interrupted as stopped:
        if out.as_jsonl or not get_turn_link(chat):
            raise
        out.note(stopped.message)
    except ConvoError as failure:
        if SLASH_COMMAND_PATTERN.search(failure.hint):
            failure.hint = format_prompt_hint(failure.hint, await desk.way_back(chat))
        raise
    finally:
        printer.end()
        if get_turn_link(chat) and not out.as_json:
            out.tell(desk.receipt(chat))
    link = get_turn_link(chat)
    assert link
    if out.as_json:
        sys.stdout.write(json.dumps(chat_outcome_to_json(chat, link)) + "\n")
    return EXIT_CODE_BY_STATUS.get(link.status, 1)


def format_prompt_hint(hint: str, way_back: str) -> str:
    """Format a hint that names a slash command, for a user who has no prompt for it."""
    return f"{way_back}, and there: {hint}" if way_back else "repeat the command"


def print_event_line(event: StreamEvent) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def ignore_event(event: StreamEvent) -> None:
    """Print nothing before the end."""


def chat_outcome_to_json(chat: Chat, link: Link) -> dict[str, Json]:
    """Return the object of `convo chat --json`."""
    session, output = chat.session, get_answer_items(chat, link)
    return {
        "response_id": None if link.id.startswith("try_") else link.id,
        "session": session.name,
        "strategy": str(session.strategy),
        "conversation_id": session.handle if session.strategy is Strategy.CONVERSATION else None,
        "model": chat.asking.model,
        "output_text": "".join(item_text(item) for item in output if item_type(item) == "message"),
        "output": output,
        "usage": link.usage,
        "status": link.status,
        "pending": [],
        "state_file": session.handle if session.strategy is Strategy.REPLAY else None,
    }


def get_answer_items(chat: Chat, link: Link) -> list[Item]:
    """Return the items of the answer: those of the response, or those received before it was stopped."""
    response = chat.turn.response if chat.turn else None
    if response:
        return list(response.get("output") or ())
    return [node.item for node in chat.held.path.after(link.saw)]
