"""The context of a chat: store, endpoint, model, write lease.

The session record is found before the model is chosen, because it names the endpoint of a handle.
Nothing is sent or stored before this process holds the write lease.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.conversation import Chat, find_adjacent_links, find_turn_end
from convo.chat.history_nav import make_session_at_turn
from convo.chat.lookup import (
    find_session_by_handle,
    load_session,
    split_turn_suffix,
    to_absolute_path,
)
from convo.chat.open import find_selected_session, fork_session, make_unforkable_error, open_chat
from convo.chat.session_record import ChatDeps, acquire_session_lease, check_session_name_free
from convo.chat.turn import RequestOptions
from convo.cli.deps import (
    can_count_locally,
    choose_session_model,
    endpoint_session,
    make_request_options,
    open_chosen_endpoint,
)
from convo.cli.output import print_notice
from convo.cli.run_options import NONE, RunFlags
from convo.config.loader import ACTIVE_PROFILE, AGENT_MODEL_SOURCE, choose_model
from convo.config.settings import EDITING_PLAIN, ModelChoice, Settings
from convo.config.storage import EPHEMERAL_STORE_TYPES
from convo.config.values import Layer, describe_percent_as_tokens, suggest_fraction_command
from convo.errors import Busy, Conflict, ConvoError, InvalidUsage, ModelMissing, NotFound
from convo.history.items import Item, Json, is_incomplete_item, is_user_message
from convo.history.records import Link, Session, Strategy
from convo.installation import get_program
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.stores.lease import LeaseGuard
from convo.strategies.selection import OwnerSelection, is_file_handle, owner_of_handle, select_owner
from convo.strategies.strategy import STRATEGIES
from convo.terminal.answer import (
    ANSWERS_PLAIN,
    MARKDOWN_MODULE,
    AnswerRenderer,
    FormatReasoning,
    format_reasoning_line,
    make_answer_renderer,
)
from convo.terminal.status_line import LoadingTime, format_lost_input, format_receipt
from convo.terminal.terminal import (
    detect_display,
    detect_display_without_color,
    escape_control_chars,
    truncate_text,
    wrap_text,
)
from convo.terminal.waiting import WaitingLine
from convo.usage.model_info import describe_appended_instructions, find_price, lacks_reasoning_effort

if TYPE_CHECKING:
    from convo.agent_runner.config import ModelRoute
    from convo.agents.agent import CustomModel
    from convo.cli.agent_options import AgentSetup
    from convo.endpoints.base import Endpoint
    from convo.terminal.prompt import PromptOptions, PromptReader
    from convo.transfer.auto_compaction import AutoCompaction


MIN_LOADING_S = 0.05
"""Seconds; a receipt leaves out a shorter time, which a loaded model needs, too."""


MAX_LOST_INPUT_CHARS = 200
"""Characters of the line about lost input where the width is unknown: its text comes from a server."""


class ForkSource(NamedTuple):
    """The start of a fork: a session's record, or the handle of a response to continue from."""

    session: Session | None = None
    handle: str | None = None


async def resolve_fork_source(store: Store, turn_handle: str) -> ForkSource:
    """Return the source of the fork that `turn_handle` names; nothing is stored.

    Raises NotFound for an unknown handle or turn, WrongOwner for a conversation, because it has one head, at its
    endpoint, and InvalidUsage for a turn of a chain that no response ends at.
    """
    handle, number = await split_turn_suffix(store, turn_handle)
    owner = STRATEGIES[owner_of_handle(handle)]
    if owner.uses_conversation:
        raise make_unforkable_error(handle)
    if owner.uses_response:
        return await _resolve_response(store, handle, number)
    session = await (_find_replay_session(store, handle) if owner.uses_file else load_session(store, handle))
    return ForkSource(session if number is None else await make_session_at_turn(store, session, number))


async def _resolve_response(store: Store, handle: str, turn: int | None) -> ForkSource:
    link = await store.link(handle)
    if link is None:
        if turn is None:
            return ForkSource(handle=handle)
        raise NotFound("response", handle, hint=f"convo inspect {handle}, to list the responses before it")
    session = await store.session(link.session_id) if link.session_id and not link.is_stored else None
    if session:
        session_at_link = replace(session, head=link.head, confirmed_head=link.head, link_id=link.id)
        return ForkSource(session_at_link if turn is None else await make_session_at_turn(store, session_at_link, turn))
    return ForkSource(handle=handle if turn is None else (await _find_response_at_turn(store, link, turn)).id)


async def _find_response_at_turn(store: Store, link: Link, turn: int) -> Link:
    """Return the response that ended a turn of a chain."""
    path = await store.path(link.head)
    turn_path = path.first(find_turn_end(path.items, turn))
    _, previous = await find_adjacent_links(turn_path, link, store)
    if previous is None or previous.head != turn_path.head:
        raise InvalidUsage(
            "no response of this chain ends at that turn", hint=f"convo inspect {link.id}, to list its responses"
        )
    return previous


async def _find_replay_session(store: Store, path: str) -> Session:
    session = await find_session_by_handle(store, to_absolute_path(path))
    if session is None:
        raise NotFound("session at", path, hint="copy the file, then continue with --replay --from COPY")
    return session


class ChatOptions(NamedTuple):
    """The options of one `convo chat`.

    model_source:  the origin of `model`, if it is not -m
    is_picked:     the user chooses the conversation from a list; `handle` is None until then
    prompt:        None for an interactive chat
    """

    strategies: tuple[Strategy, ...] = ()
    handle: str | None = None
    continue_last: bool = False
    is_picked: bool = False
    fork: str | None = None
    name: str | None = None
    store_remotely: bool = False
    model: str | None = None
    model_source: str | None = None
    instructions: str | None = None
    attachments: tuple[str, ...] = ()
    schema_file: str | None = None
    parameters: Mapping[str, Json] = MappingProxyType({})
    strict_prefix: bool | None = None
    keep_prefix: bool | None = None
    prompt: str | None = None
    config: Path | None = None
    run_flags: RunFlags = RunFlags()

    @property
    def is_continued(self) -> bool:
        """Whether an existing conversation is continued or forked."""
        return bool(self.handle or self.continue_last or self.fork)


@dataclass(frozen=True, slots=True)
class ChatOutput:
    """The output options of one `convo chat`."""

    quiet: bool = False
    as_json: bool = False
    as_jsonl: bool = False
    is_streamed: bool = True
    is_plain: bool = False
    waiting_line: WaitingLine = field(init=False)

    def __post_init__(self) -> None:
        is_for_user = not (self.quiet or self.as_json or self.as_jsonl)
        object.__setattr__(self, "waiting_line", WaitingLine(sys.stdout, sys.stderr, is_enabled=is_for_user))

    def note(self, text: str) -> None:
        """Print a message that is not the answer to stderr, unless --quiet is set."""
        if not self.quiet:
            self.print_message(text)

    def note_wrapped(self, text: str) -> None:
        """Print the message in lines that fit the terminal, for text that is not copied as a whole."""
        self.note(wrap_text(escape_control_chars(text), detect_display_without_color(sys.stderr).width))

    def print_message(self, text: str) -> None:
        """Print a message to stderr, also with --quiet: a part of a question."""
        self.waiting_line.hide()
        print_notice(text)
        sys.stderr.flush()

    def print_styled(self, text: str) -> None:
        """Print lines that are escaped and styled already to stderr, also with --quiet: a part of a question."""
        self.waiting_line.hide()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def print_receipt(self, format_receipt: Callable[[int | None], str], *, has_margin: bool = True) -> None:
        """Print a receipt: on a terminal as one dim line below an empty one.

        format_receipt:  formats it for a number of columns; None: all of it, in as many lines as it needs
        has_margin:      False if the line above is empty already
        """
        if self.quiet or not self.waiting_line.is_enabled:
            self.note_wrapped(format_receipt(None))
            return
        display = detect_display(sys.stderr, os.environ)
        line = display.translate_box_chars(escape_control_chars(format_receipt((display.width or 80) - 1)))
        self.waiting_line.hide()
        margin = "\n" if has_margin else ""
        sys.stderr.write(f"{margin}{display.apply_style(line, 'dim')}\n")
        sys.stderr.flush()


class ChatContext:
    """Opens the chat that the options select, and formats its receipts and its continue command."""

    def __init__(
        self, settings: Settings, store: Store, exit_stack: AsyncExitStack, options: ChatOptions, output: ChatOutput
    ) -> None:
        self._given_settings, self._store, self._exit_stack = settings, store, exit_stack
        self.options, self.output = options, output
        output.waiting_line.is_enabled &= settings.editing != EDITING_PLAIN  # for screen readers
        self._settings: Settings | None = None
        self.can_count_locally = False
        self._auto_compaction: AutoCompaction | None = None
        self._has_warned_of_threshold = False
        self._endpoints: dict[str, Endpoint] = {}
        self.leases: dict[str, LeaseGuard] = {}
        self._noted_settings: set[str] = set()
        self._loading: LoadingTime | None = None
        self._loading_tasks: set[asyncio.Task[None]] = set()
        self._loaded_models: set[str] = set()
        self.choice: ModelChoice | None = None
        self.chat_effort: str | None = None

    @property
    def settings(self) -> Settings:
        """The settings, with the model of the open chat."""
        assert self._settings
        return self._settings

    async def open(self, *, is_asked_at_once: bool = False) -> Chat:
        """Open the conversation that the options select, for writing.

        is_asked_at_once:  prepare the endpoint while the store is read, not when the user begins to type

        Raises Busy for a session that another process writes, and the errors of the lookup and of the endpoint.
        """
        options = self.options
        fork_source = await resolve_fork_source(self._store, options.fork) if options.fork else ForkSource()
        selection, source_session = self._select_owner(fork_source), fork_source.session
        session = source_session or (None if options.fork else await find_selected_session(self._store, selection))
        if selection.replay_file and not (session or options.strategies):
            check_replay_file_exists(selection.replay_file)
        name = await self._choose_session_name(None if source_session else session)
        deps, request_options = await self.connect(session)
        if is_asked_at_once and not self._is_model_local:  # an engine is a process, which must not outlive an error
            self._start_loading_task(partial(deps.endpoint.warm, request_options.wire_model))
        if source_session:
            chat = await fork_session(source_session, request_options, deps, name=name)
        else:
            chat = await open_chat(selection, session, request_options, deps, name=name)
        try:
            await self.acquire_lease(chat)
        except Busy as busy:
            if not session or options.run_flags.source or not await confirm_fork_of_busy_session(busy, session):
                raise
            chat = await fork_session(session, request_options, deps)
            await self.acquire_lease(chat)
        # Another process may have continued the session before the lease was acquired.
        await chat.refresh()
        state = chat.load_state()
        last_item: Item = state.path.nodes[-1].item if state.unconfirmed_nodes else {}
        if options.continue_last and (is_incomplete_item(last_item) or is_user_message(last_item)):
            problem = "message has no response" if is_user_message(last_item) else "answer was interrupted"
            self.output.note(f"continuing {chat.session.name!r}; its last {problem}")
        self.note_new_file(chat.session)
        return chat

    def get_answer_renderer(self) -> AnswerRenderer | None:
        """Return the renderer of answers; None for answers printed as plain text."""
        is_plain = self.output.is_plain or ANSWERS_PLAIN in (self.settings.answers, self.settings.editing)
        footer = self.output.waiting_line.footer
        # A single answer needs no mark that tells it from the questions.
        has_gutter = self.options.prompt is None and not self.output.quiet
        renderer = None if is_plain else make_answer_renderer(sys.stdout, os.environ, footer, has_gutter=has_gutter)
        self.output.waiting_line.preloaded_module = MARKDOWN_MODULE if renderer else ""
        return renderer

    def get_reasoning_formatter(self) -> FormatReasoning | None:
        """Return the formatter of the line about reasoning; None if --quiet is set or stderr is not a terminal."""
        if self.output.quiet or not sys.stderr.isatty():
            return None
        display = detect_display(sys.stderr, os.environ)
        has_slash_commands = self.options.prompt is None
        return lambda item, seconds: format_reasoning_line(
            item, seconds, display, has_slash_commands=has_slash_commands
        )

    async def compact_if_needed(self, chat: Chat) -> None:
        """Compact the history if it is too long for another message; a notice is printed first."""
        from convo.transfer.auto_compaction import AutoCompaction

        threshold = self.settings.compact_at
        self._auto_compaction = self._auto_compaction or AutoCompaction(threshold, self.settings.windows)
        due = self._auto_compaction.check_due(chat)
        if due is None:
            return
        from convo.cli.auto_compaction import compact_due_history

        if not self._has_warned_of_threshold:
            self._has_warned_of_threshold = True
            if warning := describe_percent_as_tokens(threshold):
                self.output.note(f"warning: {warning}; for {threshold:g} %: {suggest_fraction_command(threshold)}")
        async with self.output.waiting_line.show("compacting"):
            await compact_due_history(chat, due, self._auto_compaction, self.output.note)

    async def load_model(self, chat: Chat) -> None:
        """Prepare the endpoint, and measure the loading of a local model for the receipt.

        Raises the errors of `Endpoint.warm`.
        """
        started, is_loaded = chat.deps.clock.monotonic(), chat.options.wire_model in self._loaded_models
        await self.warm_up(chat)
        if not is_loaded:
            self._set_loading_time(chat.deps.clock.monotonic() - started, is_in_duration=False)

    async def warm_up(self, chat: Chat) -> None:
        """Prepare the endpoint for the first request. Raises the errors of `Endpoint.warm`."""
        model = chat.options.wire_model
        await chat.deps.endpoint.warm(model)
        self._loaded_models.add(model)

    def measure_loading(self, chat: Chat) -> None:
        """Measure for the receipt how long the turn that begins now waits for a local model that is not loaded yet."""
        self._loading = None
        if not self._is_model_local or chat.options.wire_model in self._loaded_models:
            return
        started = chat.deps.clock.monotonic()

        async def wait_until_loaded() -> None:
            await self.warm_up(chat)
            self._set_loading_time(chat.deps.clock.monotonic() - started, is_in_duration=True)

        self._start_loading_task(wait_until_loaded)

    def _start_loading_task(self, load: Callable[[], Awaitable[None]]) -> None:
        async def load_without_error() -> None:
            with suppress(ConvoError):  # the turn raises it, too
                await load()

        task = asyncio.create_task(load_without_error())
        # The event loop has only a weak reference to a task.
        self._loading_tasks.add(task)
        task.add_done_callback(self._loading_tasks.discard)

    def _set_loading_time(self, seconds: float, *, is_in_duration: bool) -> None:
        is_noticeable = self._is_model_local and seconds >= MIN_LOADING_S
        self._loading = LoadingTime(seconds, is_in_duration) if is_noticeable else None

    @property
    def _is_model_local(self) -> bool:
        return self.choice is not None and self.choice.provider.api == "local"

    def print_receipt(self, chat: Chat) -> None:
        """Print the receipt of the last turn, which has ended."""
        link = get_turn_link(chat)
        assert link
        self.output.print_receipt(lambda columns: self.format_receipt(chat, link, columns=columns))
        self.print_lost_input([link])

    def print_lost_input(self, links: Sequence[Link]) -> None:
        """Print the lost input that the provider reported last, unless the setting is off."""
        lines = [line for link in links if (line := format_lost_input(link.reported))]
        if lines and self.settings.cache_diagnostics:
            self.output.print_receipt(
                lambda columns: truncate_text(lines[-1], columns or MAX_LOST_INPUT_CHARS), has_margin=False
            )

    def format_receipt(
        self, chat: Chat, link: Link, calls: Sequence[Link] = (), *, columns: int | None = None, agent: str = ""
    ) -> str:
        """Format the receipt of `link`, which may be the total of several calls, as `status_line.format_receipt`."""
        prices = self.settings.prices
        price = find_price(chat.options.model, prices, link.service_tier)
        call_prices = [find_price(call.model, prices, call.service_tier) for call in calls]
        return format_receipt(
            link,
            chat.session,
            price,
            calls,
            call_prices=call_prices,
            columns=columns,
            loading=self._loading,
            agent=agent,
        )

    async def make_continue_command(self, chat: Chat) -> str:
        """Return the command that continues this chat later, or "" for a chat that cannot be continued."""
        session, config = chat.session, self.options.config
        is_stored = not self.is_store_ephemeral and await self._store.session(session.id)
        handle = session.name if is_stored else session.handle
        prefix = f"{get_command_prefix()} --config {quote(str(config))}" if config else get_command_prefix()
        source = self.options.run_flags.source
        agent_option = f" {source.options}" if source else ""
        return f"{prefix} chat --from {quote(handle)}{agent_option}" if handle and chat.turn else ""

    @property
    def is_store_ephemeral(self) -> bool:
        """Whether the store keeps nothing after this process."""
        return self.settings.storage.type in EPHEMERAL_STORE_TYPES

    @property
    def paused_runs_folder(self) -> Path:
        """The folder of the states of paused runs."""
        return self._given_settings.paths.paused_runs

    @property
    def prompt_history_file(self) -> Path:
        """The file of the prompt's history."""
        return self._given_settings.paths.prompt_history

    def with_agents_record(self, chat: Chat, setup: "AgentSetup") -> "AgentSetup":
        """Return `setup` for the runs of `chat`, with a record of the agents unless the store is ephemeral."""
        if self.is_store_ephemeral:
            return setup
        return setup.with_agents_record(chat.session.id, self.options.model, self._given_settings.paths.data)

    async def add_stored_options(self) -> tuple[RunFlags, str | None]:
        """Return the options of agent runs and -m, with those of the session that is continued or forked.

        Raises the errors of `open`, and InvalidUsage or Unreadable.
        """
        options = self.options
        fork_source = await resolve_fork_source(self._store, options.fork) if options.fork else ForkSource()
        session = fork_source.session or (
            None if options.fork else await find_selected_session(self._store, self._select_owner(fork_source))
        )
        rows = await self._store.agent_runs(session_id=session.id, limit=1) if session else ()
        if not rows:
            return options.run_flags, options.model
        from convo.cli.agent_options import add_stored_options  # a chat without agents does not need the import

        flags, data_folder = options.run_flags, self._given_settings.paths.data
        if options.fork and flags.sdk_session is None:  # it belongs to the conversation that is forked
            flags = replace(flags, sdk_session=NONE)
        flags, model = add_stored_options(flags, options.model, rows[0], data_folder, self.output.note)
        if not flags.has_source_option:
            self.output.note(
                "the agents of this session are not stored; continuing without agents (use --agent to name them)"
            )
        return (flags if flags.source else options.run_flags), model

    # -- conversation -----------------------------------------------------------------------

    def _select_owner(self, fork_source: ForkSource) -> OwnerSelection:
        options = self.options
        if options.fork and (options.handle or options.continue_last or options.strategies):
            raise InvalidUsage(
                "--fork cannot be used with --from, -c or a strategy option", hint="convo chat --fork HANDLE"
            )
        return select_owner(
            options.strategies, fork_source.handle or options.handle, use_last_session=options.continue_last
        )

    async def _choose_session_name(self, session: Session | None) -> str:
        """Return the name for a new session, "" for a generated one; `session` is the one that is continued.

        Raises InvalidUsage for a continued session or an invalid name, Conflict for the name of another session.
        """
        name = self.options.name
        if name is None:
            return ""
        if session:
            raise InvalidUsage(
                f"-n names a new session, and this one is already named {session.name!r}",
                hint=f"convo sessions rename {quote(session.name)} {quote(name)}",
            )
        try:
            await check_session_name_free(self._store, name)
        except Conflict as conflict:
            if command := await self._make_resume_command(name):
                raise conflict.replace_hint(f"{command}, to continue its run; or choose another name") from None
            hint = f"convo chat --from {quote(name)} continues it, or choose another name"
            raise conflict.replace_hint(hint) from None
        except InvalidUsage as error:
            if Strategy.REPLAY in self.options.strategies and is_file_handle(name):
                error.replace_hint(f"--replay --from {quote(name)}")
            raise
        return name

    async def _make_resume_command(self, name: str) -> str:
        """Return the command that continues the run of a session, with the options of this one; "" for no open run."""
        session = await self._store.session(name)
        newest = await self._store.agent_runs(session_id=session.id, limit=1) if session else ()
        if not newest or newest[0].status not in ("running", "paused"):
            return ""
        source, model = self.options.run_flags.source, self.options.model
        agent_options = f" {source.options}" if source else ""
        return f"{get_command_prefix()} resume {quote(name)}{agent_options}{f' -m {quote(model)}' if model else ''}"

    def note_new_file(self, session: Session) -> None:
        if session.replay_file and not os.path.lexists(session.replay_file):
            relative_path = os.path.relpath(session.replay_file)
            self.output.note(
                f"saving the conversation to {session.replay_file if relative_path.startswith('..') else relative_path}"
            )

    # -- endpoint and model ------------------------------------------------------------------------------

    async def connect(self, session: Session | None, *, model: str | None = None) -> tuple[ChatDeps, RequestOptions]:
        self._settings, choice = choose_session_model(self._given_settings, session, model=model)
        self.can_count_locally = can_count_locally(choice)
        self._note_built_in_model(choice)
        endpoint = await self._exit_stack.enter_async_context(endpoint_session(choice, self.settings, self._store))
        self._endpoints[choice.provider.name] = endpoint
        self.choice = choice
        return ChatDeps(self._store, endpoint, SystemClock(), random_id), self.make_request_options(choice, session)

    def make_route(self, model: "str | CustomModel") -> "ModelRoute":
        """Return the route of an agent's own model; each endpoint is opened once.

        Raises InvalidSettings or InvalidUsage.
        """
        from convo.agent_runner.config import ModelRoute

        if not isinstance(model, str):
            self._note_ignored_settings(
                [f"{field} is ignored: the agent's own model makes the requests" for field in self.options.parameters]
            )
            if model.name not in self._endpoints:
                from convo.chat.endpoint_factory import open_custom_endpoint

                self._endpoints[model.name] = open_custom_endpoint(model, self.settings, self._store)
                self._exit_stack.push_async_callback(self._endpoints[model.name].aclose)
            return ModelRoute(RequestOptions(model.name, model.name), self._endpoints[model.name])
        choice = choose_model(self.settings, model, source=AGENT_MODEL_SOURCE)
        name = choice.provider.name
        if name not in self._endpoints:
            endpoint = open_chosen_endpoint(choice, self.settings, self._store)
            self._exit_stack.push_async_callback(endpoint.aclose)
            self._endpoints[name] = endpoint
        request_options = self.make_request_options(choice, None)
        self.warn_of_agent_instructions(request_options)
        return ModelRoute(request_options, self._endpoints[name])

    def warn_of_agent_instructions(self, options: RequestOptions) -> None:
        """Say once that the model bills the field `instructions`, which agents keep, with every request."""
        if options.instructions_as_message:
            sentence = f"warning: {describe_appended_instructions(options.model)}; agents always use them"
            self._note_ignored_settings([sentence])

    def make_request_options(self, choice: ModelChoice, session: Session | None) -> RequestOptions:
        options = self.options
        parameters = dict(options.parameters)
        if self.chat_effort and lacks_reasoning_effort(choice.name.model, choice.provider.api):
            self._note_ignored_settings(
                [f"the effort {self.chat_effort} is ignored: {choice.name} does not support a reasoning effort"]
            )
        elif self.chat_effort:
            parameters["reasoning"] = {**parameters.get("reasoning", {}), "effort": self.chat_effort}
        request_options = make_request_options(
            choice,
            self.settings,
            instructions=session.instructions if session and options.instructions is None else options.instructions,
            parameters=parameters,
            schema_file=options.schema_file,
            store=options.store_remotely,
        )
        self._note_ignored_settings(request_options.ignored_settings)
        return request_options

    def _note_ignored_settings(self, sentences: Sequence[str]) -> None:
        """Print each sentence once in a chat."""
        for sentence in sentences:
            if sentence not in self._noted_settings:
                self._noted_settings.add(sentence)
                self.output.note(sentence)

    def _note_built_in_model(self, choice: ModelChoice) -> None:
        if choice.source.layer is Layer.DEFAULT and choice.provider.api == "local":
            from convo.models.factory import find_built_in_weights

            try:
                find_built_in_weights(self.settings.paths.weights)
            except ModelMissing:  # the error of the request says how to install it
                self.output.note("No API key found, and the built-in model is not installed.")
            else:
                self.output.note("No API key found. Using the bundled SmolLM2-135M (demo quality).")

    async def acquire_lease(self, chat: Chat) -> None:
        if chat.session.id not in self.leases:
            lease = self.leases[chat.session.id] = await acquire_session_lease(self._store, chat.session)
            self._exit_stack.push_async_callback(lease.release)


async def confirm_fork_of_busy_session(busy: Busy, session: Session) -> bool:
    """Return whether the user at the terminal wants a fork of a session that another process has open."""
    if STRATEGIES[session.strategy].uses_conversation or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from convo.terminal.prompt import read_plain_line

    with suppress(EOFError):
        answer = await read_plain_line(
            escape_control_chars(f"{busy.message}; fork it and continue in the fork? [y/N] ")
        )
        return answer.strip().lower() in ("y", "yes")
    return False


def open_prompt_reader(options: "PromptOptions") -> "PromptReader":
    """Return a line editor where it can be drawn, else a plain reader."""
    from convo.terminal.prompt import PlainReader, can_draw_prompt

    if not can_draw_prompt(options.editing):
        return PlainReader()
    from convo.terminal.line_editor import LineEditor

    return LineEditor(options)


def check_replay_file_exists(file: str) -> None:
    """Raise NotFound for a missing file. Only the form of the handle says that it is a file."""
    if not os.path.lexists(to_absolute_path(file)):
        raise NotFound("file", file, hint=f"convo chat --replay --from {quote(file)}, to start a new one")


def get_command_prefix() -> str:
    """Return the start of this process's command line, so that printed commands can be pasted."""
    profile = ACTIVE_PROFILE.get()
    return f"{get_program()} --profile {quote(profile)}" if profile else get_program()


def get_turn_link(chat: Chat) -> Link | None:
    """Return the link of the last turn; None before the first request."""
    return chat.turn.link if chat.turn else None
