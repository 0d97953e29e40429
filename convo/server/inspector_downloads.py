"""Downloads of the inspector page: a request as code, and a conversation as a file.

A request to convo's own endpoint is written as one to this server. The formats of a file are those of
`convo export`; as there, a mirrored conversation is written as the local record has it.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from convo.chat.lookup import load_sent_body
from convo.chat.next_request import rebuild_link_request
from convo.chat.view_loader import load_handle_view, load_request_view
from convo.config.sections import Provider, is_keyless
from convo.config.settings import LOCAL_TENANT
from convo.endpoints.base import Endpoint
from convo.errors import RequestRefused
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.inspect.request_code import (
    SERVER_KEY_VARIABLE,
    UNKNOWN_KEY_VARIABLE,
    CodeTarget,
    render_request_code,
    to_sent_target,
)
from convo.inspect.serialize import ConversationDocument
from convo.inspect.view import ConversationView
from convo.server import pages
from convo.server.handlers import HandlerContext
from convo.server.inspector_data import store_for_tenant
from convo.strategies.strategy import STRATEGIES
from convo.transfer.convert import load_source
from convo.transfer.export import (
    JSON_FORMAT,
    load_exported_document,
    render_jsonl,
    render_markdown_export,
    render_replay,
)


async def encode_code(context: HandlerContext) -> bytes:
    """Render a stored request as code.

    Raises NotFound if there is no such request, or an item of its input was deleted, and RequestRefused for a request
    to a server that the openai package reaches with other classes only.
    """
    link_id = context.path_params["id"]
    store = store_for_tenant(context)
    view = await load_request_view(store, link_id)
    link = next(link for link in view.links if link.id == link_id)
    target = to_sent_target(_find_target(link, context), await load_sent_body(store, link))
    return await asyncio.to_thread(_render_link_code, context.query.get("language", "curl"), target, link, view)


def _render_link_code(language: str, target: CodeTarget, link: Link, view: ConversationView) -> bytes:
    if target.sent is not None:
        return render_request_code(language, target, target.sent.body).encode()
    request = rebuild_link_request(link, view)
    comment = "//" if language == "javascript" else "#"
    note = f"{comment} The client's own request was {request.translation}.\n" if request.translation else ""
    return (note + render_request_code(language, target, request.body)).encode()


def _find_target(link: Link, context: HandlerContext) -> CodeTarget:
    """Return the server of a request, with the variable of its key by the settings."""
    if link.scope == EMBEDDED_SCOPE:
        key_env = None if context.tenant == LOCAL_TENANT else SERVER_KEY_VARIABLE
        return CodeTarget(context.query.get("base_url") or context.base_url, key_env)
    scope, name = link.scope, link.model.partition("/")[0]
    matches = [provider for provider in context.inspector.providers.values() if provider.base_url == scope.url]
    provider = next((provider for provider in matches if provider.name == name), matches[0] if matches else None)
    if provider and provider.api == "azure" and provider.api_version:
        raise RequestRefused(
            f"The request was sent to Azure with api_version '{provider.api_version}': copy it with convo inspect -i",
            code="unsupported_target",
        )
    base_url = f"{scope.url}/openai/v1" if provider and provider.api == "azure" else scope.url
    return CodeTarget(base_url, _get_key_variable(provider), scope.organisation, scope.project)


def _get_key_variable(provider: Provider | None) -> str | None:
    if provider and is_keyless(provider):
        return None
    return (provider and provider.key_env) or UNKNOWN_KEY_VARIABLE


# -- conversations as files ------------------------------------------------------------------------


class DownloadFormat(NamedTuple):
    """A format of an exported conversation."""

    suffix: str
    content_type: bytes
    render: Callable[[ConversationDocument], str]


EXPORT_FORMATS: Mapping[str, DownloadFormat] = {
    "json": DownloadFormat("json", b"application/json", render_replay),
    "jsonl": DownloadFormat("jsonl", b"application/jsonl", render_jsonl),
    "markdown": DownloadFormat("md", b"text/markdown; charset=utf-8", render_markdown_export),
    "html": DownloadFormat("html", b"text/html; charset=utf-8", pages.render_conversation_page),
}


async def render_export(context: HandlerContext) -> tuple[bytes, DownloadFormat, str]:
    """Render a conversation; returns the content, its format, and the name of the file.

    Raises NotFound and AmbiguousHandle, and ItemDeleted if an item of the history was deleted.
    """
    store, handle = store_for_tenant(context), context.path_params["handle"]
    format_name = context.query.get("format", "json")
    export_format = EXPORT_FORMATS[format_name]
    view = await load_handle_view(store, handle, read_files=context.tenant == LOCAL_TENANT, max_links=1)
    source = await load_source(view, store, _find_owner(view, context))
    # The page's JSON is the list of items: it links to it as to what a program can send.
    document_format = "replay" if format_name == JSON_FORMAT else format_name
    document = await load_exported_document(source, view, document_format, store)
    text = await asyncio.to_thread(export_format.render, document)
    return text.encode(), export_format, f"{_to_file_name(source.name or view.handle)}.{export_format.suffix}"


def _find_owner(view: ConversationView, context: HandlerContext) -> Endpoint | None:
    """Return our own endpoint if it stores the original of this session's history, as `convo export` reads it."""
    is_own = view.scope == EMBEDDED_SCOPE and view.session is not None and view.session.handle
    return context.endpoint if is_own and STRATEGIES[view.strategy].is_server_side else None


def _to_file_name(name: str) -> str:
    """Return a name in ASCII without characters that a header, a shell or a file system interprets."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:64].strip("-") or "conversation"
