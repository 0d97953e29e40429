"""Routes of the inspector page: its files, its JSON calls, its downloads, and the feed of changes.

The files are public; the data needs the same key as the API. The calls are in the OpenAPI document.
`inspector_data` and `inspector_downloads` are imported with the first call.

`GET /inspect/api/requests` lists requests, newest first unless `sort` and `order` say otherwise:

    {"data": [{"id": "resp_...", "title": "What is rain?", "created_at": 1700000000.0, "model": "openai/gpt-6.1-terra",
               "status": "completed", "session": "weather", "client": null, "latency_s": 1.5,
               "input_tokens": 120, "cached_tokens": 64, "output_tokens": 30, "cost_usd": 0.0001,
               "parent": "resp_...",        the request that it continues, or null; a recorded request in progress
                                            also has its "text" so far
               "cache_missed": false,       whether most of the tokens of its parent were not read from the prompt cache
               "code": null}],              of its error
     "next": "WzE3...",            the value of `after` for the next page; null on the last one
     "running": [...],             rows of requests in progress that are not stored yet, with their "text" so far
     "paused": [{"run_id": "run_...", "session": "refunds", "pending": [{"call_id", "name", "arguments"}]}],
     "models": [...], "sessions": [...], "tools": [...],    values of the filters: models by full name and tools of the
                                                           newest 10,000 requests, and the newest sessions
     "is_search_limited": false,   whether `q` or `tool` matches more items than the search considers: 1,000, 20,000
     "is_recording": false,        whether this server records requests that are not stored
     "not_recorded": [{"client": "codex 0.171.0", "count": 12}]}      completed requests that it could have recorded,
                                                                      by client; empty while it records

A request in progress has the "phase" "waiting" until the first event of its response, and then "streaming". Its id is
that of the request until the id of its response is known, `request_id` stays. A request that leaves no response in the
store, because it is not stored, refused or cancelled, is listed with figures and no content; no call returns it:

    {"id": "req_...", ..., "is_stored": false, "api": "chat_completions", "code": "rate_limit_exceeded",
     "count": 12,                  requests of one second with the same API, model, status, code and client
     "first_token_s": null, "request_bytes": 5120, "response_bytes": 900}       sums, as the tokens and the cost

With `request=ID` it also has `continued`: the ids of at most 20 stored requests that continue this one, and of all
that are in progress. The filters do not apply to them.

`GET /inspect/api/requests/{id}?compare=ID` returns one request as the object of a conversation, below, with only this
request, its parent and the one to compare it with in `links`, and with `continued`: the ids of at most 20 requests
that continue it. Forks are not read, so the time does not depend on their number. `sent` has the body of a recorded
request as its client sent it, or is null: {"protocol": "messages", "path": "/v1/messages", "headers", "body"}.
`cache_miss` is the object of `convo why --json`, with its cause in words as `description`; null without a miss.

`GET /inspect/api/requests/{id}/code?language=curl|python|javascript` returns a stored request as code, as plain text:
a curl command, or a program for the openai package, which sends the same body again. A recorded request is sent to the
API of its client: a program for Anthropic Messages uses the anthropic package. A request to convo's own endpoint
goes to `base_url`, without it to the host that the call names; the key is read from the variable `CONVO_KEY`, that of
another server from the variable in the settings.

`GET /inspect/api/conversations/{handle}` returns a superset of `convo inspect --json`: at most 2,000 requests of one
tree, first those on the way to the handle, and a note if there are more. A link that missed the prompt cache, at least
partly, has `cache_miss` as above.

`GET /inspect/api/conversations/{handle}/export?format=json|jsonl|markdown|html` returns a conversation as
`convo export` writes it, as an attachment.

`GET /inspect/api/conversations/{handle}/compaction?keep_last=N` returns the plan of `convo compact`; no model is
called, so the tokens of the summary are not known:

    {"method": "summary", "items_before": 12, "items_replaced": 10, "items_kept": 2, "tokens_before": 5200,
     "tokens_replaced": 5000, "tokens_after_without_summary": 700, "is_estimate": false,
     "replaced": [{"type": "message", "tokens": 12, "preview": "What is rain?"}]}      the newest 200

`GET /inspect/api/conversations/{handle}/runs` lists the newest 20 stored agent runs of a session:

    {"data": [{"id": "run_...", "status": "paused", "created_at": 1700000000.0, "changed_at": 1700000004.0, "turn": 2,
               "agent": "triage", "agents": [{"name": "triage", "tools": ["look_up"]}], "open_guardrails": ["pii"],
               "failure": null, "calls": [{"call_id", "turn", "name", "arguments", "started_at", "has_ended",
               "output"}]}]}

`GET /inspect/api/compare?a=HANDLE&b=HANDLE` compares the histories that end at two heads: two branches of one tree,
or two conversations. The object begins as that of `convo diff --json`; at most 200 rows after the first difference,
with their items by index:

    {"a": {"handle": "resp_...", "name": "resp_...", "head": "resp_...", "model": "openai/gpt-6.1-terra", "items": 6,
           "requests": 3, "is_partial": false,     whether it has more requests: only the last 2,000 are counted
           "own_requests": 1,                      requests that the other side does not have, with
           "own_usage": {"input_tokens", "cached_tokens", "output_tokens"}, "own_cost_usd": 0.0001,     their figures;
           "own_known_cost_usd": 0.0001,           the cost of those whose price is known,
           "own_unpriced": 0},                     and the number of those whose price is unknown
     "b": {...},
     "same": 4, "first": {"at": 4, "path": "content[0].text", "a": {...}, "b": {...}},
     "rest": [{"a": 4, "b": 4, "mark": "changed"}], "omitted": 0, "items": {"a": {"4": {...}}, "b": {...}},
     "tokens": {"same": 1200, "a": 80, "b": 90, "estimated": false},
     "request": {...}}       the last requests as in `convo diff --wire --json`, b as the later one, with the cost
                             "missed_cost_usd" of tokens that could have been cached and were not; null without them

`POST /inspect/api/markdown` with `{"texts": [...]}`, at most 20, returns `{"data": [{"nodes": [...], "note": ""}]}`:
the nodes of `markdown_nodes`, or null and a note that says why a text is plain.

`GET` and `POST /inspect/api/approvals` and `GET /inspect/api/decisions` show and decide the pending calls of paused
runs; `inspector_approvals` describes them.

A figure that is unknown is null, and such rows come last.

`GET /inspect/api/charts` aggregates all requests that pass the same filters, without `running`, in at most 60 buckets
of time that begin at multiples of their size in UTC:

    {"bucket_s": 300,              seconds of a bucket; null without requests
     "buckets": [{"start": 1700000100, "requests": 12, "errors": 1, "latency_p50_s": 1.5, "latency_p95_s": 4.0,
                  "input_tokens": 1200, "cached_tokens": 640, "output_tokens": 300, "cache_hit_rate": 0.53}],
     "total": {...},               the same figures of all buckets, without the latencies, and "cost_usd", "unpriced"
     "models": {"top": [{"name": "openai/gpt-6.1-terra", "requests": 12, "cost_usd": 0.01, "unpriced": 0}],
                "other": null},    the ten with the highest cost; {"groups": 3, "requests": ...}: the sum of the others
     "sessions": {...},            the same by session; the name is null without a session or if it is removed
     "damaged": 0,                 damaged rows that were left out
     "is_search_limited": false}

`errors` are the failed requests, `unpriced` those with usage whose price is unknown. A latency percentile is the
smallest latency that this part of the requests does not exceed; a row with a count counts once, as its slowest request.

The feed of changes is a stream of server-sent events:
`inspector.changed` at its start, and after each change of the store or of the responses in progress.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from convo.chat.conversation_list import CONVERSATION_SORTS
from convo.history.records import LINK_STATUSES
from convo.inspect.request_code import CODE_LANGUAGES
from convo.server import errors, pages
from convo.server.handlers import ApiRoute, HandlerContext, HandlerResult, RawResponse
from convo.server.http import (
    JSON_CONTENT_TYPE,
    NO_CONTENT_STATUS,
    QueryParameter,
    parse_integer_value,
    parse_order_value,
    parse_text_value,
    serialize_strict_json,
)
from convo.server.sse import EventsResult
from convo.stores.request_list import REQUEST_SORTS

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response to a browser: no content sniffing, and no use by other sites."""

UNCACHED_HEADERS = (*SECURITY_HEADERS, (b"cache-control", b"no-store"))

PAGE_HEADERS = (
    *SECURITY_HEADERS,
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", pages.SERVED_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

LIMIT_PARAMETER = QueryParameter(
    "limit",
    parse_integer_value,
    {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50},
    "Maximum number of conversations; a value out of range counts as the nearest valid one.",
)
COMPARE_PARAMETER = QueryParameter(
    "compare", parse_text_value, {"type": "string"}, "The id of another request to include."
)
SEEN_PARAMETER = QueryParameter("seen", parse_text_value, {"type": "string"}, "The version that the page shows.")


def _parse_choice(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text not in choices:
            raise errors.http_parameter_value_error(name, text, choices)
        return text

    return parse


def parse_time_value(name: str, text: str) -> float:
    if not TIME_VALUE.fullmatch(text):
        raise errors.http_parameter_type_error(name, "a number of seconds since 1970")
    return float(text)


TIME_VALUE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
TIME_SCHEMA = {"type": "number", "minimum": 0, "exclusiveMaximum": 10**12}

ORDER_PARAMETERS = (
    QueryParameter(
        "sort",
        _parse_choice(REQUEST_SORTS),
        {"type": "string", "enum": list(REQUEST_SORTS), "default": "created_at"},
        "The column to sort by.",
    ),
    QueryParameter(
        "order", parse_order_value, {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "The order."
    ),
)

FILTER_PARAMETERS = (
    QueryParameter(
        "status", _parse_choice(LINK_STATUSES), {"type": "string", "enum": list(LINK_STATUSES)}, "Only this status."
    ),
    QueryParameter("model", parse_text_value, {"type": "string"}, "Only this model, by its full name."),
    QueryParameter("session", parse_text_value, {"type": "string"}, "Only this session, by name or id."),
    QueryParameter(
        "q", parse_text_value, {"type": "string"}, "Only requests with these words in their own input or output."
    ),
    QueryParameter(
        "tool",
        parse_text_value,
        {"type": "string"},
        "Only requests whose response calls this tool, or that offer a hosted tool of this type or server label.",
    ),
    QueryParameter(
        "from",
        parse_time_value,
        TIME_SCHEMA,
        "Only requests created at this time or later, in seconds since 1970.",
    ),
    QueryParameter(
        "to", parse_time_value, TIME_SCHEMA, "Only requests created before this time, in seconds since 1970."
    ),
)

VIEW_PARAMETERS = (*ORDER_PARAMETERS, *FILTER_PARAMETERS)
"""The order and the filters of the list of requests."""

REQUEST_LIST_PARAMETERS = (
    QueryParameter(
        "limit",
        parse_integer_value,
        {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "Maximum number of requests; a value out of range counts as the nearest valid one.",
    ),
    QueryParameter("after", parse_text_value, {"type": "string"}, "The cursor of the previous page."),
    QueryParameter(
        "request",
        parse_text_value,
        {"type": "string"},
        "Return the requests that continue this one, too, as `continued`.",
    ),
    *VIEW_PARAMETERS,
)

CONVERSATION_LIST_PARAMETERS = (
    LIMIT_PARAMETER,
    QueryParameter("after", parse_text_value, {"type": "string"}, "The cursor of the previous page."),
    QueryParameter(
        "sort",
        _parse_choice(CONVERSATION_SORTS),
        {"type": "string", "enum": list(CONVERSATION_SORTS)},
        "The column to sort by; without it by the last use, and with words by rank.",
    ),
    ORDER_PARAMETERS[1],
    QueryParameter(
        "q", parse_text_value, {"type": "string"}, "Only conversations with these words in one item, or in their name."
    ),
)

PAGE_PARAMETERS = tuple(
    QueryParameter(name, parse_text_value, {"type": "string"}, description)
    for name, description in (
        *((parameter.name, parameter.description) for parameter in VIEW_PARAMETERS),
        ("time", "The time until now that is shown: hour, day or week."),
        ("request", "The request that is shown."),
        ("tab", "The part of it that is shown."),
        ("compare", "The request that it is compared with."),
        ("charts", "Whether the charts are shown: open."),
    )
)
"""The query of the page itself. Its script reads it and ignores invalid values, so the server accepts any."""


EXPORT_FORMAT_NAMES = ("json", "jsonl", "markdown", "html")

BASE_URL = re.compile(r"https?://[!-~]{1,2000}")


def parse_language_value(name: str, text: str) -> str:
    if text not in CODE_LANGUAGES:
        raise errors.http_parameter_value_error(name, text, CODE_LANGUAGES)
    return text


def parse_format_value(name: str, text: str) -> str:
    if text not in EXPORT_FORMAT_NAMES:
        raise errors.http_parameter_value_error(name, text, EXPORT_FORMAT_NAMES)
    return text


def parse_base_url_value(name: str, text: str) -> str:
    if not BASE_URL.fullmatch(text):
        raise errors.http_parameter_type_error(name, "an HTTP or HTTPS URL")
    return text


CODE_PARAMETERS = (
    QueryParameter(
        "language",
        parse_language_value,
        {"type": "string", "enum": list(CODE_LANGUAGES), "default": "curl"},
        "curl, or the language of a program.",
    ),
    QueryParameter(
        "base_url",
        parse_base_url_value,
        {"type": "string", "pattern": f"^{BASE_URL.pattern}$"},
        "Base URL of this server's API, if its clients use another one than this call.",
    ),
)
COMPACTION_PARAMETERS = (
    QueryParameter(
        "keep_last",
        parse_integer_value,
        {"type": "integer", "minimum": 0, "default": 0},
        "How many of the last turns stay unchanged.",
    ),
)
APPROVAL_PARAMETERS = (
    QueryParameter("run", parse_text_value, {"type": "string"}, "The id of the run.", is_required=True),
    QueryParameter("call", parse_text_value, {"type": "string"}, "The id of the call.", is_required=True),
)
COMPARISON_PARAMETERS = tuple(
    QueryParameter(
        name,
        parse_text_value,
        {"type": "string"},
        "A response, a conversation, or a session by name or id.",
        is_required=True,
    )
    for name in ("a", "b")
)
DECISION_LIST_PARAMETERS = (
    QueryParameter("run", parse_text_value, {"type": "string"}, "A run id: return its decisions only."),
    QueryParameter(
        "limit",
        parse_integer_value,
        {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
        "Maximum number of decisions; a value out of range counts as the nearest valid one.",
    ),
)
EXPORT_PARAMETERS = (
    QueryParameter(
        "format",
        parse_format_value,
        {"type": "string", "enum": list(EXPORT_FORMAT_NAMES), "default": "json"},
        "The format of the file.",
    ),
)


async def serve_page(context: HandlerContext) -> HandlerResult:
    return await serve_page_file(replace(context, path_params={"name": ""}))


async def serve_page_file(context: HandlerContext) -> HandlerResult:
    """Serve a file of the page. Raises RequestRefused if there is no such file."""
    page_file = pages.load_page_files().get(context.path_params["name"])
    if page_file is None:
        raise errors.unknown_url_error("GET", pages.INSPECTOR_FILES_PATH + context.path_params["name"])
    return RawResponse(page_file.body, page_file.content_type, PAGE_HEADERS)


async def serve_favicon(context: HandlerContext) -> HandlerResult:
    """Respond without content, so that the browser shows no error: there is no icon."""
    return RawResponse(b"", b"image/x-icon", SECURITY_HEADERS, NO_CONTENT_STATUS)


async def serve_session_list(context: HandlerContext) -> HandlerResult:
    from convo.server import inspector_data

    return make_uncached_response(await inspector_data.encode_session_list(context))


async def serve_conversation_view(context: HandlerContext) -> HandlerResult:
    """Serve the data of one conversation. Raises NotFound and AmbiguousHandle."""
    from convo.server import inspector_data

    return make_uncached_response(await inspector_data.encode_conversation_view(context))


async def serve_request_list(context: HandlerContext) -> HandlerResult:
    """Serve one page of the requests. Raises RequestRefused for an invalid cursor."""
    from convo.server import inspector_data

    return make_uncached_response(await inspector_data.encode_request_list(context))


async def serve_request_view(context: HandlerContext) -> HandlerResult:
    """Serve the data of one request. Raises NotFound."""
    from convo.server import inspector_data

    return make_uncached_response(await inspector_data.encode_request_view(context))


async def serve_code(context: HandlerContext) -> HandlerResult:
    """Serve a request as code. Raises NotFound and RequestRefused."""
    from convo.server import inspector_downloads

    return RawResponse(await inspector_downloads.encode_code(context), b"text/plain; charset=utf-8", UNCACHED_HEADERS)


async def serve_markdown(context: HandlerContext) -> HandlerResult:
    """Serve texts as nodes. Raises RequestRefused."""
    from convo.server import inspector_details

    return make_uncached_response(await inspector_details.encode_markdown(context))


async def serve_compaction_preview(context: HandlerContext) -> HandlerResult:
    """Serve the preview of a compaction. Raises NotFound, AmbiguousHandle, InvalidUsage and StateFault."""
    from convo.server import inspector_details

    return make_uncached_response(await inspector_details.encode_compaction_preview(context))


async def serve_comparison(context: HandlerContext) -> HandlerResult:
    """Serve the comparison of two branches. Raises NotFound, AmbiguousHandle and ItemDeleted."""
    from convo.server import inspector_details

    return make_uncached_response(await inspector_details.encode_comparison(context))


async def serve_agent_runs(context: HandlerContext) -> HandlerResult:
    """Serve the agent runs of a session. Raises NotFound and AmbiguousHandle."""
    from convo.server import inspector_details

    return make_uncached_response(await inspector_details.encode_agent_runs(context))


async def serve_export(context: HandlerContext) -> HandlerResult:
    """Serve a conversation as a file. Raises NotFound, AmbiguousHandle and ItemDeleted."""
    from convo.server import inspector_downloads

    content, export_format, file_name = await inspector_downloads.render_export(context)
    headers = (
        *UNCACHED_HEADERS,
        (b"content-security-policy", b"sandbox; default-src 'none'"),
        (b"content-disposition", f'attachment; filename="{file_name}"'.encode("ascii")),
    )
    return RawResponse(content, export_format.content_type, headers)


async def serve_charts(context: HandlerContext) -> HandlerResult:
    """Serve the figures of the requests that pass the filters."""
    from convo.server import inspector_data

    return make_uncached_response(await inspector_data.encode_charts(context))


async def serve_approval(context: HandlerContext) -> HandlerResult:
    """Serve one pending call. Raises NotFound, AlreadyDecided and RequestRefused."""
    from convo.server import inspector_approvals

    return make_uncached_response(await inspector_approvals.encode_approval(context))


async def serve_decisions(context: HandlerContext) -> HandlerResult:
    """Serve the log of decisions. Raises NotFound."""
    from convo.server import inspector_approvals

    return make_uncached_response(await inspector_approvals.encode_decisions(context))


async def decide_approval(context: HandlerContext) -> HandlerResult:
    """Store a decision. Raises NotFound, AlreadyDecided and RequestRefused."""
    from convo.server import inspector_approvals

    return make_uncached_response(serialize_strict_json(await inspector_approvals.store_decision(context)))


async def serve_changes(context: HandlerContext) -> HandlerResult:
    """Stream an event at each change, until the server shuts down."""
    from convo.server import inspector_data

    return EventsResult(inspector_data.follow_changes(context), stream=True, may_be_empty=True)


def make_uncached_response(body: bytes) -> RawResponse:
    return RawResponse(body, JSON_CONTENT_TYPE, UNCACHED_HEADERS)


HANDLE_ERRORS = "Errors: 404 if there is no such conversation; 400 `ambiguous_handle` for a prefix of several."
HISTORY_ERRORS = f"{HANDLE_ERRORS[:-1]}, `item_deleted` if an item of the history was deleted."
COMPACTION_ERRORS = (
    f"{HANDLE_ERRORS[:-1]}, `usage` if there is nothing to compact, `state_fault` if a call has no output."
)
CODE_ERRORS = (
    "Errors: 404 if there is no such request; 400 `unsupported_target` for a server that the code cannot reach."
)
APPROVAL_ERRORS = "Errors: 404 if there is no such run or pending call; 409 `approval_decided`, `ambiguous_call`."
DECISION_ERRORS = (
    f"{APPROVAL_ERRORS[:-1]}, `arguments_changed`, `session_open`, `run_changed`; 401 `invalid_api_key`; "
    "403 `api_key_required` if the server has no keys, `origin_not_allowed`, `invalid_csrf_token`. "
    "With `approval_decided`, the member `decision` of the error is the earlier decision."
)

APPROVAL_ROUTES = (
    ApiRoute(
        "GET",
        "/inspect/api/approvals",
        serve_approval,
        "Retrieve a pending call of a paused agent run.",
        "Approval",
        query=APPROVAL_PARAMETERS,
        description=APPROVAL_ERRORS,
        operation_id="approvals_retrieve",
    ),
    ApiRoute(
        "POST",
        "/inspect/api/approvals",
        decide_approval,
        "Approve or reject a pending call; needs an API key.",
        "DecisionResult",
        request_schema="DecisionBody",
        description=DECISION_ERRORS,
        operation_id="approvals_decide",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/decisions",
        serve_decisions,
        "List the decisions on calls, newest first.",
        "DecisionList",
        query=DECISION_LIST_PARAMETERS,
        operation_id="approvals_decisions",
    ),
)
"""The calls that decide approvals; `inspector_approvals` describes them."""

COMPARISON_ROUTES = (
    ApiRoute(
        "GET",
        "/inspect/api/compare",
        serve_comparison,
        "Retrieve the comparison of the histories that end at two heads.",
        "PageData",
        query=COMPARISON_PARAMETERS,
        description=HISTORY_ERRORS,
        operation_id="comparisons_retrieve",
    ),
)

INSPECTOR_ROUTES = (
    ApiRoute("GET", "/", serve_page, "The inspector page.", "Text", query=PAGE_PARAMETERS, is_public=True),
    ApiRoute("GET", "/favicon.ico", serve_favicon, "An empty response: there is no icon.", "Text", is_public=True),
    ApiRoute(
        "GET", f"{pages.INSPECTOR_FILES_PATH}{{name}}", serve_page_file, "A file of the page.", "Text", is_public=True
    ),
    ApiRoute(
        "GET",
        "/inspect/api/list",
        serve_session_list,
        "List conversations, sorted and searched.",
        "PageData",
        query=CONVERSATION_LIST_PARAMETERS,
        operation_id="inspector_list",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/requests",
        serve_request_list,
        "List requests, sorted and filtered.",
        "PageData",
        query=REQUEST_LIST_PARAMETERS,
        operation_id="inspector_requests",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/requests/{id}",
        serve_request_view,
        "Retrieve one request with its parent.",
        "PageData",
        query=(COMPARE_PARAMETER,),
        operation_id="inspector_request",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/requests/{id}/code",
        serve_code,
        "Retrieve a request as code.",
        "Text",
        query=CODE_PARAMETERS,
        description=CODE_ERRORS,
        operation_id="inspector_code",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/charts",
        serve_charts,
        "Aggregate requests for charts.",
        "PageData",
        query=FILTER_PARAMETERS,
        operation_id="inspector_charts",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/changes",
        serve_changes,
        "Follow changes as server-sent events.",
        "ChangeEvents",
        operation_id="inspector_changes",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/conversations/{handle}",
        serve_conversation_view,
        "Retrieve one conversation.",
        "PageData",
        query=(SEEN_PARAMETER,),
        description=HANDLE_ERRORS,
        operation_id="inspector_conversation",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/conversations/{handle}/export",
        serve_export,
        "Export one conversation as a file.",
        "ConversationFile",
        query=EXPORT_PARAMETERS,
        description=HISTORY_ERRORS,
        operation_id="inspector_export",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/conversations/{handle}/compaction",
        serve_compaction_preview,
        "Preview a compaction of one conversation.",
        "PageData",
        query=COMPACTION_PARAMETERS,
        description=COMPACTION_ERRORS,
        operation_id="inspector_compaction",
    ),
    ApiRoute(
        "GET",
        "/inspect/api/conversations/{handle}/runs",
        serve_agent_runs,
        "List the agent runs of one conversation.",
        "PageData",
        description=HANDLE_ERRORS,
        operation_id="inspector_runs",
    ),
    ApiRoute(
        "POST",
        "/inspect/api/markdown",
        serve_markdown,
        "Render Markdown as nodes.",
        "PageData",
        request_schema="MarkdownBody",
        operation_id="inspector_markdown",
    ),
)

DOCUMENTED_ROUTES = (
    *APPROVAL_ROUTES,
    *COMPARISON_ROUTES,
    *(route for route in INSPECTOR_ROUTES if route.operation_id),
)
"""The calls of the page, which are in the OpenAPI document; the others are its files."""
