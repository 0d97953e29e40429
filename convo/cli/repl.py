"""The controller of an interactive chat: its slash commands and its status line.

`ReplController` is a chat context that also changes model and strategy, forks, and switches to another
conversation; the lease of the previous one is released. Links are read once for each head, so an idle
prompt reads nothing.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from convo.chat.conversation import Chat
from convo.chat.history_nav import make_session_at_turn
from convo.chat.open import check_no_open_run, find_selected_session, fork_session, open_chat
from convo.chat.turn import RequestOptions
from convo.cli.context import ChatContext, check_replay_file_exists, get_command_prefix
from convo.config.request_settings import EFFORT_FIELD, REASONING_EFFORTS, find_similar_effort
from convo.config.sections import Price
from convo.config.settings import Settings
from convo.errors import InvalidUsage, StateFault, Unsupported, WindowExceeded
from convo.history.items import Item, Json, user_message
from convo.history.records import Link, Strategy, is_compaction_link
from convo.history.tree import Key, Prefix, derive
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.strategies.selection import select_owner
from convo.terminal.prompt import Suggestion
from convo.terminal.status_line import (
    StatusLineState,
    format_request_fields,
    format_status,
    format_status_owner,
)
from convo.terminal.terminal import detect_display_without_color
from convo.usage.cost import Usage
from convo.usage.counting import estimate_tokens
from convo.usage.model_info import find_model_window, is_text_only_model, lacks_reasoning_effort

if TYPE_CHECKING:
    from convo.chat.next_request import RequestTokenCounter
    from convo.cli.agent_run import RunPresenter
    from convo.endpoints.base import Endpoint
    from convo.inspect.context_window import ContextUsage
    from convo.inspect.view import PathIndex
    from convo.strategies.strategy import RequestInput
    from convo.terminal.picker import PickerEntries


MAX_PREPENDED_ITEMS = 5
"""Items that the owner prepends to a request, of which /next shows the last."""


class ReplController(ChatContext):
    """A chat context with a prompt: the `convo.terminal.repl.ReplHost`. `presenter`: of the agents' runs, if any."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._link_cache = SessionLinkCache()
        self._is_counter_ready = False
        self._compacted_context: tuple[Key, bool, int] | None = None
        self.presenter: RunPresenter | None = None

    async def switch_model(self, chat: Chat, model: str) -> None:
        """Use another model from the next turn on. Raises WrongOwner or InvalidSettings."""
        instructions = chat.options.instructions
        chat.deps, options = await self._connect(chat.session, model=model)
        chat.options = replace(options, instructions=instructions)
        if self.presenter:
            self.presenter.warn_of_instructions()

    def change_effort(self, chat: Chat, effort: str | None) -> None:
        """Use another reasoning effort from the next turn on, also with other models; None: that of the settings.

        Raises InvalidUsage for an effort that the API does not know, Unsupported for a model that has none.
        """
        choice = self._choice
        assert choice
        if effort is not None and effort not in REASONING_EFFORTS:
            raise InvalidUsage(
                f"no reasoning effort {effort!r}; the API has {', '.join(REASONING_EFFORTS)}",
                hint=f"/effort {find_similar_effort(effort)}",
            )
        if effort not in (None, "none") and lacks_reasoning_effort(choice.name.model, choice.provider.api):
            raise Unsupported(
                chat.options.model,
                "a reasoning effort",
                param=EFFORT_FIELD,
                hint="choose another model with /model",
            )
        self._chat_effort = effort
        options = self._make_request_options(choice, None)
        chat.options = replace(
            chat.options,
            parameters=options.parameters,
            field_sources=options.field_sources,
            ignored_settings=options.ignored_settings,
        )

    def describe_effort(self, chat: Chat) -> str:
        """Describe the reasoning effort of the next request, with its source."""
        fields = format_request_fields(chat.options.parameters, chat.options.field_sources)
        effort = next((line for line in fields if line.startswith(f"{EFFORT_FIELD} ")), "")
        unset = chat.options.ignored_settings[0] if chat.options.ignored_settings else "no effort is sent"
        return effort or unset

    async def change_strategy(self, chat: Chat, owner: str) -> tuple[Chat, str]:
        """Convert the conversation to another strategy; return it and the report.

        Raises InvalidUsage, and the errors of `convert_chat`.
        """
        from convo.cli.convert import render_owner_change
        from convo.transfer.convert import convert_chat

        converted, plan = await convert_chat(chat, parse_strategy(owner))
        converted.notify = chat.notify
        await self._acquire_lease(converted)
        return converted, render_owner_change(converted, plan)

    async def fork(self, chat: Chat, number: int | None) -> Chat:
        """Fork the conversation at its head, or at the end of a turn.

        Raises InvalidUsage, and the errors of `make_session_at_turn` and `fork_session`.
        """
        if not chat.load_state().path:
            raise InvalidUsage("the conversation is empty, so it cannot be forked", hint="send a message first")
        await chat.ensure_saved()  # a fork without a message of its own is not stored yet
        source = chat.session if number is None else await make_session_at_turn(self._store, chat.session, number)
        forked = await fork_session(source, chat.options, chat.deps)
        forked.notify = chat.notify
        await self._acquire_lease(forked)
        return forked

    async def open_new(self, chat: Chat, name: str) -> Chat:
        """Open another conversation with the same strategy, and release `chat`. Raises InvalidUsage or Conflict."""
        from convo.cli.repl_actions import open_new_chat

        new_chat = await open_new_chat(chat, name)
        await self._move_lease(chat, new_chat)
        self._note_new_file(new_chat.session)
        return new_chat

    async def open_existing(self, chat: Chat, handle: str) -> Chat:
        """Open the conversation of a handle, and release `chat`.

        Raises NotFound, Busy or InvalidUsage, and the errors of the lookup and of the endpoint.
        """
        selection = select_owner((), handle, use_last_session=False)
        session = await find_selected_session(self._store, selection)
        if session and session.id == chat.session.id:
            raise InvalidUsage(f"{session.name} is already open", hint="/resume, to list the others")
        if selection.replay_file and not session:
            check_replay_file_exists(selection.replay_file)
        if session:
            await check_no_open_run(self._store, session)
            if not self._options.agent_source and await self._store.agent_runs(session_id=session.id, limit=1):
                command = f"{get_command_prefix()} chat --from {quote(session.name)}"
                self._output.note(f"{session.name} used agents, and this chat does not; to use them: {command}")
        deps, options = await self._connect(session)
        opened_chat = await open_chat(selection, session, options, deps)
        await self._move_lease(chat, opened_chat)
        await opened_chat.refresh()
        opened_chat.load_state()
        return opened_chat

    async def render_recent_sessions(self, chat: Chat) -> str:
        return await render_recent_sessions(self._store)

    async def load_conversation_entries(self, chat: Chat) -> "PickerEntries":
        from convo.cli.picker_entries import load_conversation_entries

        display = detect_display_without_color(sys.stderr)
        return await load_conversation_entries(
            self._store, SystemClock().now(), display, open_session_id=chat.session.id
        )

    async def load_model_entries(self, chat: Chat) -> "PickerEntries":
        from convo.cli.picker_entries import load_model_entries

        assert self._settings
        return await load_model_entries(self._store, self._settings, chat.options.model)

    async def rename(self, chat: Chat, name: str) -> None:
        from convo.cli.repl_actions import rename_open_session

        await rename_open_session(chat, name)

    async def export(self, chat: Chat, text: str) -> str:
        from convo.cli.repl_actions import export_open_chat
        from convo.cli.resolve import LookupOptions

        assert self._settings
        return await export_open_chat(chat, text, self._settings, LookupOptions(self._options.config))

    async def links(self, chat: Chat) -> Sequence[Link]:
        return await self._link_cache.load_links(chat)

    async def load_path_index(self, chat: Chat) -> "PathIndex":
        """Return the items of the requests of the conversation. Raises StoreFault."""
        from convo.chat.view_loader import load_path_index

        return await load_path_index(self._store, chat.load_state().path, await self.links(chat))

    @property
    def prices(self) -> Mapping[str, Price]:
        assert self._settings
        return self._settings.prices

    async def load_status_line_state(self, chat: Chat) -> StatusLineState:
        """Return the values of the status line, after a compaction with the tokens of /context. Raises StoreFault."""
        assert self._settings
        state = await self._link_cache.load_status_line_state(chat, self._settings)
        last_link = chat.record.last_link
        if state.used_tokens is None or last_link is None or not is_compaction_link(last_link):
            return state
        is_counter_slow = self._choice is not None and self._choice.provider.api == "local"  # until it is loaded
        key = chat.state.path.head, self._is_counter_ready or not is_counter_slow
        if self._compacted_context is None or self._compacted_context[:2] != key:
            _, usage = await self._measure_context(chat, can_start_counter=key[1])
            self._compacted_context = (*key, usage.total.tokens)
        return state._replace(used_tokens=self._compacted_context[2])

    async def complete(self, text_before_cursor: str) -> tuple[int, Sequence[Suggestion]]:
        from convo.cli.prompt_completion import ReplCompleter

        assert self._settings
        return await ReplCompleter(self._store, self._settings).complete(text_before_cursor)

    @property
    def editing_mode(self) -> str:
        """The editing mode of the prompt."""
        assert self._settings
        return self._settings.editing

    def check_input_supported(self, chat: Chat, parts: Sequence[Json]) -> None:
        """Reject input that the model would reject, before anything is stored.

        Raises Unsupported for a model that takes text only, and WindowExceeded if the text parts alone, without the
        history, exceed its context window.
        """
        assert self._settings
        model = chat.options.model
        media = [MEDIA_NAMES[part["type"]] for part in parts if part.get("type") in MEDIA_NAMES]
        if media and is_text_only_model(model):
            raise Unsupported(
                model,
                media[0],
                param="input",
                hint="choose another model with /model, or remove the attachment with /detach",
            )
        text_parts = [part for part in parts if part.get("type") == "input_text"]
        window = find_model_window(model, self._settings.windows)
        needed_tokens = estimate_tokens(user_message("", *text_parts)) if text_parts else 0
        if window and needed_tokens > window.context:
            raise WindowExceeded(model, needed_tokens, window.context)

    async def compact(self, chat: Chat, text: str) -> str:
        """Run /compact with its arguments and return the report. Raises the errors of `compact_open_chat`."""
        from convo.cli.auto_compaction import compact_open_chat

        async with self._output.waiting_line.show("compacting"):
            report = await compact_open_chat(chat, text)
        self._is_counter_ready = True
        return report

    async def render_handle(self, chat: Chat, handle: str) -> str:
        from convo.cli.resolve import render_handle

        return await render_handle(self._store, handle or chat.session.id)

    def render_status(self, chat: Chat) -> str:
        options = chat.options
        fields = [*format_request_fields(options.parameters, options.field_sources), *options.ignored_settings]
        return format_status(chat.session, chat.load_state(), chat.options.model, fields)

    async def render_next_request(self, chat: Chat, text: str) -> str:
        from convo.chat.next_request import build_next_request
        from convo.terminal.inspect_view import render_next_request

        items = [user_message(text)] if text else []
        options, endpoint, request_input = await self._prepare_next_request(chat, items)
        assert self._settings
        state, windows, counter = chat.load_state(), self._settings.windows, self._choose_token_counter(chat, endpoint)
        next_request = await build_next_request(
            chat.session.name,
            state,
            items,
            options,
            endpoint,
            counter,
            windows=windows,
            request_input=request_input,
            previous_instructions=chat.session.instructions,
            cache_options=options.build_comparison(chat.record.last_link, endpoint.scope),
        )
        return render_next_request(
            next_request,
            detect_display_without_color(sys.stderr),
            max_prepended=MAX_PREPENDED_ITEMS,
            compact_command="/compact",
        )

    async def render_context_usage(self, chat: Chat) -> str:
        """Render the context window by part; during a pause without the parts that the agents add."""
        from convo.terminal.usage_views import context_meter_lines

        model, usage = await self._measure_context(chat)
        self._is_counter_ready = True
        display = detect_display_without_color(sys.stderr)
        return display.translate_box_chars("\n".join([f"  {model}", *context_meter_lines(usage, model, display)]))

    async def _measure_context(self, chat: Chat, *, can_start_counter: bool = True) -> tuple[str, "ContextUsage"]:
        """Return the model of the next request, and its use of the context window.

        can_start_counter:  a model on this machine may be loaded for an exact count
        """
        from convo.chat.next_request import measure_context_window, skip_remote_count

        options, endpoint, request_input = chat.options, chat.deps.endpoint, None
        with suppress(StateFault):
            options, endpoint, request_input = await self._prepare_next_request(chat, ())
        assert self._settings
        counter = self._choose_token_counter(chat, endpoint) if can_start_counter else skip_remote_count
        usage = await measure_context_window(
            chat.load_state(), options, counter, self._settings.windows, request_input=request_input
        )
        return options.model, usage

    async def _prepare_next_request(
        self, chat: Chat, items: Sequence[Item]
    ) -> tuple[RequestOptions, "Endpoint", "RequestInput | None"]:
        """Return the options and the endpoint of the next request, and its input if agents decide on it.

        Raises the errors of `AgentRunner.preview_request`.
        """
        if self.presenter is None:
            return chat.options, chat.deps.endpoint, None
        await self.presenter.switch_chat(chat)
        prepared = await self.presenter.runner.preview_request(items)
        return prepared.options, prepared.endpoint, prepared.request_input

    def _choose_token_counter(self, chat: Chat, endpoint: "Endpoint") -> "RequestTokenCounter":
        from convo.chat.next_request import make_endpoint_counter, skip_remote_count

        return (
            make_endpoint_counter(endpoint)
            if self._can_count_locally and endpoint is chat.deps.endpoint
            else skip_remote_count
        )

    async def _move_lease(self, chat: Chat, target: Chat) -> None:
        """Take the lease of `target` and release that of `chat`. Raises Busy."""
        target.notify = chat.notify
        await self._acquire_lease(target)
        lease = self._leases.pop(chat.session.id, None)
        if lease:
            await lease.release()


def parse_strategy(name: str) -> Strategy:
    """Parse the name of a strategy. Raises InvalidUsage for an unknown one."""
    if name not in list(Strategy):
        raise InvalidUsage(f"no owner {name!r}", hint=f"one of {', '.join(Strategy)}")
    return Strategy(name)


MAX_RECENT_SESSIONS = 10
"""Sessions that /resume lists."""

MEDIA_NAMES: Mapping[str, str] = {"input_image": "images", "input_file": "files"}


MAX_NEW_LINKS = 16
"""Newest links that are read after a turn; if all of them are new, all are read."""


@dataclass
class SessionLinkCache:
    """The links of a session as its store has them; a new head reads only the newest."""

    _read_at: tuple[str, Key] = ("", Key(""))
    _links: Prefix[Link] = field(default_factory=Prefix)

    async def load_links(self, chat: Chat) -> Sequence[Link]:
        """Return the session's links, oldest first. Raises StoreFault."""
        key = chat.session.id, chat.state.path.head
        if not chat.record.is_saved:
            return ()
        if key != self._read_at:
            read_links, known = partial(chat.deps.store.links, chat.session.id), {each.id for each in self._links}
            newest = await read_links(limit=MAX_NEW_LINKS) if self._links and key[0] == self._read_at[0] else ()
            new = [link for link in newest if link.id not in known]
            is_complete = len(new) < len(newest)  # one of them is known, so no other new one is older
            self._links = self._links.append(new) if is_complete else Prefix(await read_links())
            self._read_at = key
        return self._links

    async def load_status_line_state(self, chat: Chat, settings: Settings) -> StatusLineState:
        """Return the values of the status line. Raises StoreFault."""
        last_link = chat.record.last_link
        usage = Usage.from_json(last_link.usage) if last_link and chat.state.path else None
        window = find_model_window(chat.options.model, settings.windows) if usage else None
        cost_usd, is_cost_partial = _sum_known_costs(await self.load_links(chat), settings.prices)
        return StatusLineState(
            owner=format_status_owner(chat.session),
            model=chat.options.model,
            used_tokens=usage.input_tokens + usage.output_tokens if usage else None,
            context_window=window.context if window else None,
            cost_usd=cost_usd,
            is_cost_partial=is_cost_partial,
        )


def _sum_known_costs(links: Sequence[Link], prices: Mapping[str, Price]) -> tuple[float | None, bool]:
    """Return the sum of the known costs, None if none is known, and whether others are unknown."""
    if not links:
        return None, False
    costs = derive(links, _make_cost_step, tuple(prices.items()))
    known_costs = [cost for cost in costs if cost is not None]
    return (sum(known_costs) if known_costs else None), len(known_costs) < len(costs)


def _make_cost_step(prices: tuple[tuple[str, Price], ...]) -> Callable[[Sequence[Link]], list[float | None]]:
    """Return a step of `derive` for the costs of the links that reported their usage; None for an unknown price."""
    from convo.inspect.view import link_cost_usd  # a new conversation does not need the import

    by_model = dict(prices)
    return lambda links: [link_cost_usd(link, by_model) for link in links if Usage.from_json(link.usage)]


async def render_recent_sessions(store: Store) -> str:
    """Render the list of the sessions used last."""
    from convo.chat.lookup import load_session_summary
    from convo.terminal.list_views import render_session_list

    summaries = [
        await load_session_summary(store, session) for session in await store.sessions(limit=MAX_RECENT_SESSIONS)
    ]
    if not summaries:
        return "  no conversations yet"
    table = render_session_list(summaries, detect_display_without_color(sys.stderr), SystemClock().now())
    return f"{table}\n  /resume NAME continues one"
