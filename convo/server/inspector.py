"""Routes of the inspector page: its files, and its two JSON calls.

The files are public; the data needs the same key as the API. The calls are not part of the API.
`inspector_data` is imported with the first call.
"""

from dataclasses import replace

from convo.server import errors, pages
from convo.server.http import (
    JSON_CONTENT_TYPE,
    NO_CONTENT_STATUS,
    QueryParameter,
    parse_integer_value,
    parse_text_value,
)
from convo.server.routes import ApiRoute, HandlerContext, HandlerResult, RawResponse

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response to a browser: no content sniffing, and no use by other sites."""

PAGE_HEADERS = (
    *SECURITY_HEADERS,
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", pages.SERVED_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

LIMIT_PARAMETER = QueryParameter("limit", parse_integer_value, {"type": "integer"}, "Maximum number of sessions.")
SEEN_PARAMETER = QueryParameter("seen", parse_text_value, {"type": "string"}, "The version that the page shows.")


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


def make_uncached_response(body: bytes) -> RawResponse:
    return RawResponse(body, JSON_CONTENT_TYPE, (*SECURITY_HEADERS, (b"cache-control", b"no-store")))


INSPECTOR_ROUTES = (
    ApiRoute("GET", "/", serve_page, "The inspector page.", "Text", is_public=True),
    ApiRoute("GET", "/favicon.ico", serve_favicon, "An empty response: there is no icon.", "Text", is_public=True),
    ApiRoute(
        "GET", f"{pages.INSPECTOR_FILES_PATH}{{name}}", serve_page_file, "A file of the page.", "Text", is_public=True
    ),
    ApiRoute(
        "GET",
        "/inspect/api/list",
        serve_session_list,
        "List sessions and other conversations.",
        "Text",
        query=(LIMIT_PARAMETER,),
    ),
    ApiRoute(
        "GET",
        "/inspect/api/conversations/{handle}",
        serve_conversation_view,
        "Retrieve one conversation.",
        "Text",
        query=(SEEN_PARAMETER,),
    ),
)
