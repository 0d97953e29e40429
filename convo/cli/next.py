"""`convo next`: show the next request of a conversation without sending it.

The handle is resolved as by `convo inspect`, the request built as by `convo chat --from`. Nothing is stored.
Only counting tokens may call the endpoint, and a remote one only with --count endpoint.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from convo.chat.files import load_attachment
from convo.chat.lookup import find_session_by_handle, load_sent_body
from convo.chat.next_request import (
    NextRequest,
    RequestTokenCounter,
    build_next_request,
    build_next_request_report,
    find_current_link,
    get_instructions,
    get_repeated_parameters,
    leave_out_items,
    make_continuation_state,
    make_endpoint_counter,
    rebuild_link_request,
    skip_remote_count,
)
from convo.chat.open import check_no_open_run
from convo.chat.turn import RequestOptions
from convo.chat.view_loader import load_session_view
from convo.cli.deps import (
    can_count_locally,
    choose_session_model,
    endpoint_session,
    load_agents,
    make_request_options,
    open_configured_store,
    print_ignored_settings,
)
from convo.cli.output import print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.cli.resolve import HandleResolver, LookupOptions
from convo.cli.run_options import RunFlags, choose_input
from convo.config.credentials import load_provider_token
from convo.config.loader import AGENT_MODEL_SOURCE, RecordedEndpoint, SettingFlags, choose_model, load_settings
from convo.config.request_settings import get_request_field, override_fields
from convo.config.settings import ModelChoice, Settings
from convo.endpoints.base import Endpoint, HttpRequest
from convo.errors import NotFound
from convo.history.items import Item, Json, user_message
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.history.request_body import SentBody
from convo.inspect.request_code import (
    SERVER_KEY_VARIABLE,
    UNKNOWN_KEY_VARIABLE,
    CodeTarget,
    build_curl_command,
    render_request_code,
    to_sent_target,
)
from convo.inspect.view import ConversationView
from convo.prompt_cache.next_usage import compare_usage
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.strategies.kept_prefix import UPDATED_FIELDS, apply_configuration_items, find_configuration_items
from convo.strategies.selection import owner_of_handle
from convo.strategies.strategy import STRATEGIES
from convo.terminal.inspect_view import render_next_request
from convo.terminal.terminal import detect_display

SERVED_NOTICE = "this request goes to convo's own endpoint; start it with convo serve"


@dataclass(frozen=True, slots=True)
class NextOptions:
    """The arguments of one `convo next`."""

    handle: str
    prompt: str = ""
    model: str | None = None
    instructions: str | None = None
    attachments: tuple[str, ...] = ()
    schema_file: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    store_remotely: bool = False
    strict_prefix: bool | None = None
    keep_prefix: bool | None = None
    provider: str | None = None
    count_by: str = "auto"
    config: Path | None = None
    run_flags: RunFlags = field(default_factory=RunFlags)
    forecast: bool = False
    dropped_items: tuple[str, ...] = ()
    removed_tools: tuple[str, ...] = ()

    def without_changes(self) -> "NextOptions":
        """Return the options of the request with the same new message, and otherwise like the one before."""
        return replace(
            self,
            model=None,
            instructions=None,
            schema_file=None,
            parameters={},
            strict_prefix=False,
            run_flags=RunFlags(),
            dropped_items=(),
            removed_tools=(),
        )


async def prepare_next_request(options: NextOptions) -> tuple[NextRequest, Settings]:
    """Build the next request; nothing is stored.

    Raises NotFound, AmbiguousHandle, Unreadable, WrongOwner, ItemDeleted or InvalidSettings, StateFault for an open
    agent run whose calls have no output yet, PrefixChanged if strict_prefix is set, and the errors of the agents' own
    code and of an endpoint that is called.
    """
    attachment_parts = [load_attachment(path) for path in options.attachments]
    message = user_message(options.prompt, *attachment_parts) if options.prompt or attachment_parts else None
    setup = await load_agents(options.run_flags)
    items = choose_input(message, setup.input_items if setup else ())
    if options.forecast:  # the setting refuses a request, not its forecast
        options = replace(options, strict_prefix=bool(options.strict_prefix))
    settings = _load_settings(options, options.model)
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        view = await _load_continued_view(store, options, settings)
        if view.session:
            await check_no_open_run(store, view.session)
        unchanged = options.without_changes()
        if options.forecast and options.run_flags.has_source_option:
            unchanged = await _add_stored_options(store, view, unchanged, settings.paths.data)
            options = await _add_stored_options(store, view, options, settings.paths.data)
        else:
            options = await _add_stored_options(store, view, options, settings.paths.data)
            unchanged = replace(unchanged, run_flags=options.run_flags)
        next_request, settings = await _build_request(store, exit_stack, view, items, options)
        if next_request.forecast and unchanged != replace(options, strict_prefix=False):
            unchanged_request, _ = await _build_request(store, exit_stack, view, items, unchanged)
            if unchanged_request.forecast:
                forecast = compare_usage(unchanged_request.forecast.request, next_request.forecast.request)
                next_request = replace(next_request, forecast=forecast)
    return next_request, settings


async def _build_request(
    store: Store, exit_stack: AsyncExitStack, view: ConversationView, items: Sequence[Item], options: NextOptions
) -> tuple[NextRequest, Settings]:
    setup = await load_agents(options.run_flags)
    model = setup.model if setup and options.model is None else options.model
    settings = _load_settings(options, model)
    settings, choice = _choose_settings_and_model(settings, view, model)
    endpoint = await exit_stack.enter_async_context(endpoint_session(choice, settings, store))
    request_options = _build_request_options(choice, settings, view, options)
    state = leave_out_items(make_continuation_state(view), options.dropped_items)
    last_link = find_current_link(view)
    request_input, input_path, counter = None, None, TOKEN_COUNTERS[options.count_by](endpoint, choice)
    if setup:
        from convo.cli.next_agents import AgentRequestPreview

        preview = AgentRequestPreview(setup, settings, store, exit_stack)
        prepared = await preview.preview_request(
            view, state, items, request_options, endpoint, same_model=bool(options.model)
        )
        counter = counter if prepared.endpoint is endpoint else skip_remote_count
        request_options, endpoint = prepared.options, prepared.endpoint
        request_input, input_path = prepared.request_input, prepared.input_path
    next_request = await build_next_request(
        view.handle,
        state,
        items,
        _remove_tools(request_options, options.removed_tools),
        endpoint,
        counter,
        key_env=_get_key_variable(choice),
        windows=settings.windows,
        request_input=request_input,
        previous_instructions=get_instructions(view),
        cache_options=request_options.build_comparison(last_link, endpoint.scope),
        input_path=input_path,
        last_link=last_link,
        earlier=view,
        planned_at=SystemClock().now(),
        has_forecast=options.forecast,
    )
    return next_request, settings


def _load_settings(options: NextOptions, model: str | None) -> Settings:
    flags = SettingFlags(
        model=model,
        model_source=AGENT_MODEL_SOURCE if options.model is None else None,
        strict_prefix=options.strict_prefix,
        keep_prefix=options.keep_prefix,
    )
    return load_settings(options.config, flags)


def _remove_tools(options: RequestOptions, names: Sequence[str]) -> RequestOptions:
    """Return the options without some tools. Raises NotFound."""
    tools = options.parameters.get("tools") or []
    known = [tool.get("name") or tool.get("server_label") or tool.get("type") for tool in tools]
    if unknown := next((name for name in names if name not in known), None):
        choices = f"choose one of {', '.join(map(str, known))}" if known else "omit --without-tool: there are no tools"
        raise NotFound("tool", unknown, hint=choices)
    left = [tool for tool, name in zip(tools, known, strict=True) if name not in names]
    parameters = {name: value for name, value in options.parameters.items() if name != "tools" or not names}
    return replace(options, parameters={**parameters, "tools": left} if names and left else parameters)


async def _add_stored_options(
    store: Store, view: ConversationView, options: NextOptions, data_dir: Path
) -> NextOptions:
    """Return `options` with those of agent runs, and -m, that the session has.

    Raises InvalidUsage for flags that do not fit them.
    """
    rows = await store.agent_runs(session_id=view.session.id, limit=1) if view.session else ()
    if rows:
        from convo.cli.agent_options import add_stored_options

        flags, model = add_stored_options(options.run_flags, options.model, rows[0], data_dir, print_notice)
        options = replace(options, model=model, run_flags=flags)
    options.run_flags.validate(instructions=options.instructions, schema_file=options.schema_file)
    return options


async def _load_continued_view(store: Store, options: NextOptions, settings: Settings) -> ConversationView:
    """Resolve the handle; for an endpoint's handle return the view of its session record, if one exists."""
    resolver = HandleResolver(settings, store, LookupOptions(options.config, options.provider))
    with show_progress("reading", settings):
        view = await resolver.resolve(options.handle)
    is_id = STRATEGIES[owner_of_handle(view.handle)].is_server_side
    record = await find_session_by_handle(store, view.handle) if is_id and not view.session else None
    return await load_session_view(store, record) if record else view


def _choose_settings_and_model(
    settings: Settings, view: ConversationView, model: str | None
) -> tuple[Settings, ModelChoice]:
    """Choose the model by the session's record; without one, the model named, else the one used last."""
    if view.session:
        return choose_session_model(settings, view.session)
    if view.scope is None or view.model is None:
        return settings, choose_model(settings, model)
    scope = view.scope
    record = RecordedEndpoint(view.handle, view.model, scope.url, scope.organisation, scope.project)
    is_server_side = STRATEGIES[make_continuation_state(view).strategy].is_server_side
    choice = choose_model(settings, model or view.model, source="-m", record=record if is_server_side else None)
    return settings._replace(providers={**settings.providers, choice.provider.name: choice.provider}), choice


def _build_request_options(
    choice: ModelChoice, settings: Settings, view: ConversationView, options: NextOptions
) -> RequestOptions:
    instructions = get_instructions(view) if options.instructions is None else options.instructions
    repeated = get_repeated_parameters(view)
    if settings.keep_prefix and not view.session:
        repeated = apply_configuration_items(repeated, find_configuration_items(view.path.items))
    request_options = make_request_options(
        choice,
        settings,
        instructions=instructions,
        parameters=override_fields(repeated, options.parameters),
        schema_file=options.schema_file,
        store=options.store_remotely,
    )
    if not view.session:  # a field that a client only repeats does not replace the value that an item has set
        sources = dict(request_options.field_sources)
        for name in UPDATED_FIELDS:
            if get_request_field(request_options.parameters, name) == get_request_field(repeated, name):
                sources[name] = "the last request"
        request_options = replace(request_options, field_sources=sources)
    print_ignored_settings(request_options)
    return request_options


def _get_key_variable(choice: ModelChoice) -> str | None:
    """Return the variable of the credential: the provider's token if it is set, else its key."""
    provider = choice.provider
    return provider.token_env if load_provider_token(provider, os.environ) else provider.key_env


def _choose_auto_counter(endpoint: Endpoint, choice: ModelChoice) -> RequestTokenCounter:
    """Use an endpoint that counts on this machine; do not call another one."""
    return make_endpoint_counter(endpoint) if can_count_locally(choice) else skip_remote_count


def _choose_endpoint_counter(endpoint: Endpoint, choice: ModelChoice) -> RequestTokenCounter:
    return endpoint.count_input_tokens


def _choose_offline_counter(endpoint: Endpoint, choice: ModelChoice) -> RequestTokenCounter:
    return skip_remote_count


TOKEN_COUNTERS: Mapping[str, Callable[[Endpoint, ModelChoice], RequestTokenCounter]] = {
    "auto": _choose_auto_counter,
    "endpoint": _choose_endpoint_counter,
    "offline": _choose_offline_counter,
}


def print_next_request(
    request: NextRequest, settings: Settings, *, output_format: str, base_url: str | None = None
) -> None:
    """Print the request in one format: "", "--json" or "--curl"."""
    if output_format == "--json":
        print_json(build_next_request_report(request))
    elif output_format == "--curl":
        print_line(_render_curl_command(request, settings, base_url))
    elif request.forecast:
        from convo.terminal.cache_view import render_next_forecast

        print_line(render_next_forecast(request.forecast, detect_display(sys.stdout, os.environ)))
    else:
        print_line(render_next_request(request, detect_display(sys.stdout, os.environ)))


def _render_curl_command(request: NextRequest, settings: Settings, base_url: str | None) -> str:
    """Render the command; print a notice if the request is one to our own endpoint."""
    if not request.url:
        print_notice(SERVED_NOTICE)
    target = HttpRequest(request.url or "", request.body, request.headers)
    return render_curl_command(target, request.key_env, settings, base_url)


def render_curl_command(
    request: HttpRequest, key_env: str | None, settings: Settings, base_url: str | None = None
) -> str:
    """Render a request as a curl command; one to convo's own endpoint, which has no URL, goes to `convo serve`.

    key_env:   the variable that holds the key; None if none is needed
    base_url:  target instead of the request's own
    """
    if not request.url:
        serve = settings.serve
        host = f"[{serve.host}]" if ":" in serve.host else serve.host
        base_url = base_url or f"http://{host}:{serve.port}/v1"
        if serve.keys_file is not None:
            request, key_env = request._replace(headers={"Authorization": "Bearer {key}"}), SERVER_KEY_VARIABLE
    if base_url:
        request = request._replace(url=f"{base_url.rstrip('/')}/responses")
    return build_curl_command(request.url, request.headers, request.body, key_env)


def _render_recorded_curl(link: Link, sent: SentBody, settings: Settings) -> str:
    """Render a recorded request as its client sent it; the key is read from the variable of its provider."""
    provider = next((each for each in settings.providers.values() if each.base_url == link.scope.url), None)
    is_own, serve = link.scope == EMBEDDED_SCOPE, settings.serve
    own_key = SERVER_KEY_VARIABLE if serve.keys_file is not None else None
    key_env = own_key if is_own else (provider and provider.key_env) or UNKNOWN_KEY_VARIABLE
    target = CodeTarget(f"http://{serve.host}:{serve.port}/v1" if is_own else link.scope.url, key_env)
    return render_request_code("curl", to_sent_target(target, sent), sent.body).rstrip("\n")


async def render_sent_curl_command(link: Link, view: ConversationView, settings: Settings) -> str:
    """Render the request of `link` as it was sent, as `convo next --curl` rendered it before.

    Raises NotFound when an item of its input was deleted, and InvalidSettings, WrongOwner or KeyRefused when its
    endpoint is not in the settings.
    """
    async with open_configured_store(settings) as store:
        sent = await load_sent_body(store, link)
    if sent is not None:
        return _render_recorded_curl(link, sent, settings)
    body = rebuild_link_request(link, view).body
    if link.scope == EMBEDDED_SCOPE:
        return render_curl_command(HttpRequest("", body, {}), None, settings)
    scope = link.scope
    record = RecordedEndpoint(view.handle, link.model, scope.url, scope.organisation, scope.project)
    choice = choose_model(settings, link.model, source=f"the model of {link.id}", record=record)
    async with open_configured_store(settings) as store, endpoint_session(choice, settings, store) as endpoint:
        request = endpoint.build_http_request(body) or HttpRequest("", body, {})
    return render_curl_command(request, _get_key_variable(choice), settings)
