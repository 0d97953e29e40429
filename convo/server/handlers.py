"""A parsed request, the result of its handler, and a row of the route table.

A handler gets a HandlerContext and returns a resource, bytes, or events to stream. A row names the schemas of its body
and response; operation ids are part of the public API.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from convo.config.sections import Price, Provider
from convo.config.settings import expand_built_in_name
from convo.endpoints.base import Endpoint, EndpointService
from convo.history.items import Json
from convo.history.records import Link
from convo.models.pass_through import PassThroughApi
from convo.runtime import Clock, SystemClock
from convo.server import errors
from convo.server.forms import UploadForm
from convo.server.http import QueryParameter
from convo.server.rate_limits import TenantLocks
from convo.server.request_log import LiveRequest, ModelApi, RecordEvents, RequestLog
from convo.server.sse import EventsResult, StoreChanges
from convo.stores.base import Store


@dataclass(frozen=True, slots=True)
class SeenConversation:
    """The parts of a conversation that a poll of its page needs, for as long as nothing is written to the store.

    data_version:      of the store, read before the conversation
    version:           that of the page's data
    link_ids:          the ids of its requests, which responses in progress may continue; none of `conv_...`
    live_handle:       the handle that its responses in progress name
    unfinished_links:  its requests that have not ended
    """

    data_version: str
    version: str
    link_ids: frozenset[str]
    live_handle: str | None
    unfinished_links: Sequence[Link]


@dataclass(frozen=True, slots=True)
class InspectorDeps:
    """Dependencies of the inspector page, besides the service.

    store:           the service's store, or another connection to its database
    prices:          the user's own prices, by full name of the model
    providers:       those of the settings, by name
    query_locks:     held during a query whose time grows with the number of a tenant's requests
    seen_conversations:  the conversations that pages of the machine's own tenant polled last, by handle
    clock:           the time of decisions and of the tokens for them
    expand_model_name:  returns the full name for the model name of a stored request
    store_changes:   the changes of the store, for all followers together
    """

    store: Store
    prices: Mapping[str, Price] = field(default_factory=dict)
    providers: Mapping[str, Provider] = field(default_factory=dict)
    query_locks: TenantLocks = field(default_factory=TenantLocks)
    seen_conversations: dict[str, SeenConversation] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    expand_model_name: Callable[[str], str] = expand_built_in_name
    store_changes: StoreChanges = field(default_factory=StoreChanges)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """One parsed request.

    inspector:         dependencies of the inspector page
    render_metrics:    renders the metrics that the caller may see, for Prometheus
    is_shutting_down:  whether the server is shutting down
    form:              the form in its body; None if its body is not a form
    tenant:            the tenant of the request's key
    path_params:       the variable parts of its path, by name
    query:             the query parameters, by name
    body:              the JSON object in its body; {} if it has none
    base_url:          of the API at the host that the request names, with /v1
    headers:           of the request, by name in lower case
    has_keys:          whether the server accepts requests with an API key only
    requests:          the running requests, and the rows of those that left no response
    live_request:      this request, if it calls a model
    record_events:     returns the events of a response to this body, recorded if they must be
    is_recorded:       whether requests of the tenant that are not stored are recorded
    """

    service: EndpointService
    inspector: InspectorDeps
    render_metrics: Callable[[], Awaitable[bytes]]
    is_shutting_down: bool
    tenant: str
    path_params: Mapping[str, str]
    query: Mapping[str, Any]
    body: dict[str, Json]
    base_url: str
    headers: Mapping[bytes, bytes]
    requests: RequestLog
    live_request: LiveRequest | None
    record_events: RecordEvents
    is_recorded: bool
    has_keys: bool
    form: UploadForm | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of this tenant."""
        return self.service.endpoint_for(self.tenant)

    def get_array(self, name: str) -> list[Json]:
        """Return the array at `name` in the body; null counts as empty. Raises RequestRefused."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, list):
            raise errors.http_parameter_type_error(name, "an array")
        return value or []

    def get_object(self, name: str) -> dict[str, str]:
        """Return the object at `name` in the body; null counts as empty. Raises RequestRefused."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise errors.http_parameter_type_error(name, "an object")
        return value or {}

    def get_boolean(self, name: str) -> bool:
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise errors.http_parameter_type_error(name, "a boolean")
        return bool(value)

    def check_fields(self, *names: str) -> None:
        """Raise RequestRefused if the body has another field."""
        for name in self.body:
            if name not in names:
                raise errors.unknown_http_parameter_error(name)


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response whose body is already serialized."""

    body: bytes
    content_type: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200


HandlerResult: TypeAlias = Mapping[str, Json] | EventsResult | RawResponse
RouteHandler: TypeAlias = Callable[[HandlerContext], Awaitable[HandlerResult]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One method of one path.

    path:              variable parts in braces, in Starlette's form; `{model:path}` may contain slashes
    response_schema:   the schema of its response, or a name in `routes.OTHER_CONTENTS`
    request_schema:    the schema of its body; None if it has none
    is_form:           whether its body is a form with one file, as multipart/form-data; else it is JSON
    is_body_optional:  whether the body may be left out
    can_stream:        whether the response may be sent as server-sent events
    is_public:         whether it needs no key and is not rate-limited
    calls_model:       whether it calls a model before it responds: a client that disconnects cancels the call
    model_api:         the API by which its requests are listed; None if they are not
    upstream_api:      the API of the model's provider to which the request is passed through; it has no handler
    description:       its errors, if their codes are its own; empty if the schemas say all
    operation_id:      its operationId, and up to the first "_" its tag; empty for the files of the inspector page
    """

    method: str
    path: str
    handler: RouteHandler | None
    summary: str
    response_schema: str
    request_schema: str | None = None
    is_form: bool = False
    is_body_optional: bool = False
    query: tuple[QueryParameter, ...] = ()
    can_stream: bool = False
    is_public: bool = False
    calls_model: bool = False
    model_api: ModelApi | None = None
    upstream_api: PassThroughApi | None = None
    description: str = ""
    operation_id: str = ""
