"""Stores, endpoints and model choices for commands, opened from the settings.

Imports are made inside the functions: most commands need only the store.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from convo.cli.output import print_notice
from convo.config.loader import RecordedEndpoint, choose_model, use_recorded_model
from convo.config.sections import APIS_WITHOUT_URL
from convo.config.settings import ModelChoice, Settings
from convo.config.storage import get_store_url
from convo.config.values import format_setting_key
from convo.errors import DamagedRow
from convo.history.items import Json
from convo.history.records import Session
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES

if TYPE_CHECKING:
    from convo.chat.turn import RequestOptions
    from convo.cli.agent_options import AgentSetup
    from convo.cli.run_options import RunFlags
    from convo.endpoints.base import Endpoint


Result = TypeVar("Result")


@asynccontextmanager
async def open_configured_store(settings: Settings, *, inline: bool = False) -> AsyncIterator[Store]:
    """Open the configured store for the block; reading does not create a database.

    The damaged rows that lists left out are named on stderr, in one line after the block.
    """
    from convo.stores.factory import open_store

    store = open_store(get_store_url(settings.storage), tenant=settings.tenant, inline=inline)
    damaged: dict[tuple[str, str], DamagedRow] = {}

    def remember(error: DamagedRow) -> None:
        damaged[error.table, error.key] = error

    store.admin.set_damaged_row_observer(remember)
    try:
        yield store
    finally:
        await store.aclose()
        if damaged:
            print_notice(format_damaged_rows(list(damaged.values())))


MAX_NAMED_ROWS = 3
"""Damaged rows that are named in one line."""


def format_damaged_rows(damaged: Sequence[DamagedRow]) -> str:
    """Format the rows that lists left out as one line, with the next command."""
    names = [f"{error.table} {error.key!r}" for error in damaged[:MAX_NAMED_ROWS]]
    if len(damaged) > MAX_NAMED_ROWS:
        names.append(f"{len(damaged) - MAX_NAMED_ROWS:,} more")
    count = f"{len(damaged):,} damaged {'row was' if len(damaged) == 1 else 'rows were'} left out"
    return f"{count} ({', '.join(names)}); {damaged[0].hint}"


async def load_agents(flags: "RunFlags") -> "AgentSetup | None":
    """Load the agents or tools that the options name; None for none. Raises the errors of `load_agent_setup`."""
    if flags.source is None:
        return None
    from convo.cli.agent_options import load_agent_setup

    return await load_agent_setup(flags)


def read_from_store(settings: Settings, read: Callable[[Store], Awaitable[Result]]) -> Result:
    """Return the result of `read` on the store, for a command that does nothing else.

    Stores in this process are read without an event loop: starting one takes longer than reading.
    """
    inline = settings.storage.type != "postgres"

    async def open_and_read() -> Result:
        async with open_configured_store(settings, inline=inline) as store:
            return await read(store)

    if inline:
        return _run_sync(open_and_read())
    import asyncio

    return asyncio.run(open_and_read())


def _run_sync(coroutine: Coroutine[object, None, Result]) -> Result:
    """Run a coroutine that never waits.

    Raises the errors of `coroutine`, and RuntimeError if it has to wait.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine has to wait, and no event loop is running")


@asynccontextmanager
async def endpoint_session(choice: ModelChoice, settings: Settings, store: Store) -> AsyncIterator["Endpoint"]:
    """Open the endpoint of the chosen model for the block."""
    endpoint = open_chosen_endpoint(choice, settings, store)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()


def open_chosen_endpoint(choice: ModelChoice, settings: Settings, store: Store) -> "Endpoint":
    """Open the endpoint of the chosen model; the caller closes it."""
    from convo.chat.endpoint_factory import open_endpoint
    from convo.runtime import SystemClock, random_id

    return open_endpoint(choice.provider, settings=settings, store=store, clock=SystemClock(), new_id=random_id)


def choose_session_model(
    settings: Settings, session: Session | None, *, model: str | None = None
) -> tuple[Settings, ModelChoice]:
    """Apply the session's record to the settings, and choose the model.

    model:  named in the chat, and stronger than any flag

    Raises WrongOwner for a model at another endpoint than the session's, and InvalidSettings.
    """
    record = make_recorded_endpoint(session) if session else None
    if record is not None:
        settings = use_recorded_model(settings, record)
    bound_record = record if session and STRATEGIES[session.strategy].is_server_side and session.handle else None
    source = "/model" if model else "-m"
    choice = choose_model(settings, model, source=source, record=bound_record)
    return settings._replace(providers={**settings.providers, choice.provider.name: choice.provider}), choice


def make_recorded_endpoint(session: Session) -> RecordedEndpoint:
    """Return the part of a session's record that the settings need."""
    scope = session.scope
    return RecordedEndpoint(session.name, session.model, scope.url, scope.organisation, scope.project)


def make_request_options(
    choice: ModelChoice,
    settings: Settings,
    *,
    instructions: str | None,
    parameters: Mapping[str, Json],
    schema_file: str | None = None,
    store: bool = False,
) -> "RequestOptions":
    """Build the request options for the chosen model.

    parameters:   the fields that the command sets; they override those of the settings
    schema_file:  the JSON schema of the response
    store:        as in `RequestOptions`

    Raises Unreadable for the schema.
    """
    from convo.chat.files import load_text_format
    from convo.chat.prefix_guard import PrefixGuard
    from convo.chat.turn import CacheDiagnostics, RequestOptions
    from convo.config.request_settings import (
        describe_field_sources,
        find_request_settings,
        merge_request_parameters,
        override_fields,
        split_refused_settings,
    )
    from convo.usage.cache_rules import find_appendable_fields
    from convo.usage.model_info import (
        appends_instructions,
        describe_refused_field,
        has_cache_diagnostics,
        has_encrypted_reasoning,
    )

    provider, model = choice.provider, choice.name.model

    def describe_refusal(field: str, value: object) -> str | None:
        return describe_refused_field(model, field, value, api=provider.api, is_openai=provider.is_openai)

    request_settings, ignored = split_refused_settings(
        find_request_settings(settings.entries, str(choice.name)), describe_refusal
    )
    if schema_file:
        parameters = override_fields(parameters, {"text": load_text_format(schema_file)})
    fields = merge_request_parameters(request_settings, parameters)
    remote = provider.endpoint == "remote"
    keeps_prefix = settings.keep_prefix and (provider.is_openai or provider.is_anthropic)
    asks_diagnostics = settings.cache_diagnostics and has_cache_diagnostics(model)
    diagnostics = (
        CacheDiagnostics(str(provider.base_url), from_first=provider.is_anthropic or not remote)
        if asks_diagnostics and (provider.is_openai or provider.is_anthropic)
        else None
    )
    return RequestOptions(
        model=str(choice.name),
        wire_model=model if remote else str(choice.name),
        instructions=instructions,
        parameters=fields,
        store=store,
        encrypt_reasoning=remote and has_encrypted_reasoning(model),
        cache_diagnostics=diagnostics,
        instructions_as_message=provider.is_openai and appends_instructions(model),
        prefix_guard=PrefixGuard(settings.prices, settings.strict_prefix, settings.keep_prefix),
        appendable=find_appendable_fields(model, fields) if keeps_prefix else (),
        field_sources=describe_field_sources(request_settings, fields),
        ignored_settings=[
            f"{format_setting_key(setting.key)} {setting.source} is ignored: {choice.name} does not support {refusal}"
            for setting, refusal in ignored
        ],
        windows=settings.windows,
    )


def print_ignored_settings(options: "RequestOptions") -> None:
    """Print the settings that the model of `options` does not support on stderr."""
    for sentence in options.ignored_settings:
        print_notice(sentence)


def can_count_locally(choice: ModelChoice) -> bool:
    """Return whether the chosen model's endpoint can count tokens on this machine."""
    return choice.provider.api in APIS_WITHOUT_URL
