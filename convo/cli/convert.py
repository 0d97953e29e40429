"""`convo convert`: copy a conversation to another strategy.

The source is not changed and no model is called. A source that a server stores is read there; of the
targets only `conversation` calls an endpoint at once.
"""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, NamedTuple

from convo.chat.conversation import Chat
from convo.chat.prefix_guard import PrefixGuard
from convo.chat.session_record import check_session_name_free
from convo.cli.deps import endpoint_session, make_recorded_endpoint, open_configured_store
from convo.cli.output import print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.cli.redact import format_redactions, redact_if_requested
from convo.cli.resolve import HandleResolver, LookupOptions
from convo.config.loader import (
    SettingFlags,
    SettingsInputs,
    choose_model,
    locate_endpoint,
    read_settings_inputs,
    resolve_settings,
)
from convo.config.settings import ModelChoice, Settings
from convo.endpoints.base import Endpoint
from convo.history.records import EMBEDDED_SCOPE, Scope, Session, Strategy
from convo.history.tree import Path
from convo.inspect.redaction import RedactionResult
from convo.inspect.view import ConversationView
from convo.prompt_cache.forecast import PrefixForecast
from convo.report import FLAT, OPTIONAL, Count, Wire
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.conversion import TransferLoss, TransferPlan, TransferTarget, plan_transfer
from convo.strategies.selection import is_file_handle
from convo.strategies.strategy import STRATEGIES
from convo.terminal.report_views import new_session_rows, render_losses
from convo.terminal.terminal import detect_display, detect_display_without_color, render_key_values
from convo.transfer.convert import (
    ConversationSource,
    ConvertDestination,
    SessionWriter,
    check_convertible,
    convert_conversation,
    load_source,
)


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The arguments of one `convo convert`."""

    handle: str
    strategy: Strategy
    new_name: str | None = None
    model: str | None = None
    provider: str | None = None
    redact: bool = False
    patterns: tuple[str, ...] = ()
    dry_run: bool = False
    as_json: bool = False
    config: FilePath | None = None


async def run_convert(options: ConvertOptions) -> None:
    """Run one conversion and print it. After an error nothing was created."""
    inputs = read_settings_inputs(options.config, SettingFlags(model=options.model))
    settings = resolve_settings(inputs)
    async with open_configured_store(settings) as store:
        resolver = HandleResolver(settings, store, LookupOptions(options.config, options.provider))
        with show_progress("reading", settings):
            view = await resolver.resolve(options.handle)
            source = await load_source_from_owner(view, settings, store)
        redactions = redact_if_requested(source.to_document(), options.redact, options.patterns, settings)
        source = source.with_redacted_document(redactions.document) if redactions else source
        destination = await resolve_destination(options.new_name, options.strategy, store)
        choice = choose_target_model(inputs, source, options.model)
        target = TransferTarget(options.strategy, get_endpoint_scope(choice), str(choice.name))
        check_convertible(source, target)
        plan = plan_transfer(source.transfer_items, target)
        path = Path(view.path.root).append(plan.items)
        prefix = PrefixGuard(settings.prices).forecast_history(
            view, path, SystemClock().now(), model=target.model, scope=target.scope
        )
        if prefix and prefix.has_loss:
            print_notice(str(prefix))
        if not options.as_json:
            notes = (*source.notes, *(format_redactions(redactions) if redactions else ()))
            print_line(render_losses(plan.losses, notes, detect_display(sys.stdout, os.environ)))
        with show_progress("writing", settings):
            session = (
                None
                if options.dry_run
                else await _make_session(source, plan, target, destination, choice, settings, store)
            )
    if options.as_json:
        print_json(_build_conversion_report(source, plan, target, session, redactions, prefix))
    elif session:
        unconfirmed_count = len(plan.items) - STRATEGIES[session.strategy].confirmed_at_start(plan.confirmed_count)
        rows = new_session_rows(session.name, session.strategy, session.handle, len(plan.items), unconfirmed_count)
        print_line(render_key_values(rows, detect_display(sys.stdout, os.environ)))


async def load_source_from_owner(view: ConversationView, settings: Settings, store: Store) -> ConversationSource:
    """Load the source; from its owner if the owner stores it and a record names the endpoint."""
    async with owner_endpoint(view, settings, store) as endpoint:
        return await load_source(view, store, endpoint)


@asynccontextmanager
async def owner_endpoint(view: ConversationView, settings: Settings, store: Store) -> AsyncIterator[Endpoint | None]:
    """Open the endpoint that stores the original of a mirror; None if the view itself is the only copy."""
    if view.session is None or not STRATEGIES[view.strategy].is_server_side or not view.session.handle:
        yield None
        return
    record = make_recorded_endpoint(view.session)
    choice = choose_model(settings, view.session.model, source=f"the record of {view.handle}", record=record)
    async with endpoint_session(choice, settings, store) as endpoint:
        yield endpoint


def choose_target_model(inputs: SettingsInputs, source: ConversationSource, model: str | None) -> ModelChoice:
    """Choose the model of the target: the one named, else the source's model at its own endpoint."""
    settings = resolve_settings(inputs)
    has_provider = source.model and "/" in source.model
    if model is not None or not has_provider:
        return choose_model(settings)
    choice = choose_model(settings, source.model, source=f"the record of {source.handle}")
    scope = source.scope
    if scope is None or not source.state.is_server_side:
        return choice
    from convo.config.loader import RecordedEndpoint, bind_to_record

    record = RecordedEndpoint(source.handle, source.model or "", scope.url, scope.organisation, scope.project)
    return bind_to_record(settings, choice, record)


def get_endpoint_scope(choice: ModelChoice) -> Scope:
    """Return the scope in which the handles of this model's endpoint are valid."""
    location = locate_endpoint(choice.provider)
    return (
        EMBEDDED_SCOPE
        if location.url == EMBEDDED_SCOPE.url
        else Scope(location.url.rstrip("/"), location.organisation, location.project)
    )


async def resolve_destination(name: str | None, strategy: Strategy, store: Store) -> ConvertDestination:
    """Return the destination that `--as` names.

    Raises InvalidUsage for an invalid name, Conflict for the name of another session.
    """
    if name is None:
        return ConvertDestination()
    if STRATEGIES[strategy].uses_file and is_file_handle(name):
        return ConvertDestination(file=name)
    await check_session_name_free(store, name)
    return ConvertDestination(name=name)


async def _make_session(
    source: ConversationSource,
    plan: TransferPlan,
    target: TransferTarget,
    destination: ConvertDestination,
    choice: ModelChoice,
    settings: Settings,
    store: Store,
) -> Session:
    writer = SessionWriter(store, SystemClock(), random_id)
    if not STRATEGIES[target.strategy].uses_conversation:
        return await convert_conversation(source, plan, target, destination, writer)
    async with endpoint_session(choice, settings, store) as endpoint:
        return await convert_conversation(source, plan, target, destination, writer, endpoint)


class ConversionSourceReport(NamedTuple):
    """The source of a conversion; `strategy` is the owner of the state."""

    handle: str
    strategy: Strategy
    items: Count


class ConversionReport(NamedTuple):
    """A conversion.

    strategy:           the owner of the state
    endpoint:           endpoint of the new session
    session:            name of the new session; null with --dry-run
    unconfirmed_count:  number of items that are sent to the new owner with the next turn
    prefix:             what the next request loses because of it; null if nothing is known
    """

    source: ConversionSourceReport
    strategy: Strategy
    endpoint: str
    model: str
    session: str | None
    handle: str | None
    items: Count
    unconfirmed_count: Annotated[Count, Wire("unacknowledged")]
    losses: Sequence[TransferLoss]
    notes: Sequence[str]
    redactions: Annotated[RedactionResult | None, FLAT]
    prefix: Annotated[PrefixForecast | None, OPTIONAL]


def _build_conversion_report(
    source: ConversationSource,
    plan: TransferPlan,
    target: TransferTarget,
    session: Session | None,
    redactions: RedactionResult | None,
    prefix: PrefixForecast | None,
) -> ConversionReport:
    return ConversionReport(
        ConversionSourceReport(source.handle, source.strategy, len(source.transfer_items)),
        target.strategy,
        str(target.scope),
        target.model,
        session.name if session else None,
        session.handle if session else None,
        len(plan.items),
        len(plan.items) - STRATEGIES[target.strategy].confirmed_at_start(plan.confirmed_count),
        plan.losses,
        source.notes,
        redactions,
        prefix,
    )


def render_owner_change(chat: Chat, plan: TransferPlan) -> str:
    """Render the result of converting an open conversation."""
    display, session, state = detect_display_without_color(sys.stderr), chat.session, chat.state
    rows = new_session_rows(
        session.name, session.strategy, session.handle, len(state.path), len(state.unconfirmed_nodes)
    )
    return f"{render_losses(plan.losses, (), display)}\n{render_key_values(rows, display)}"
