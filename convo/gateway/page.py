"""The inspector page: its files, and the two questions that it asks.

The files hold nothing of anybody and are given to whoever asks. What they show goes by the rules of
the API: the same keys, the same tenants, and without keys this machine alone. None of it is part of the
API or stands in a document of it: the page and its server are always of one version. What answers the
questions is loaded when somebody asks the first one; most servers are never looked at.
"""

from dataclasses import replace

from convo.gateway import refusals
from convo.gateway.asked import Answer, Asked, Plain
from convo.gateway.exchange import JSON, NO_CONTENT
from convo.gateway.queries import Query, integer, string
from convo.gateway.routes import Route
from convo.pages import inspector

GUARD = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""What every answer to a browser carries: it is what it says it is, and for no other site."""

PUBLIC = (
    *GUARD,
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", inspector.SERVED_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

LIMIT = Query("limit", integer, {"type": "integer"}, "Sessions at most.")
SEEN = Query("seen", string, {"type": "string"}, "The version that the page has.")


async def page(asked: Asked) -> Answer:
    return await file(replace(asked, ids={"name": ""}))


async def file(asked: Asked) -> Answer:
    """raises: Refused  the page has no such file"""
    found = inspector.served().get(asked.ids["name"])
    if found is None:
        raise refusals.no_route("GET", inspector.AT + asked.ids["name"])
    return Plain(found.body, found.form, PUBLIC)


async def icon(asked: Asked) -> Answer:
    """There is none, and a browser that asks for one is not told of an error."""
    return Plain(b"", b"image/x-icon", GUARD, NO_CONTENT)


async def listed(asked: Asked) -> Answer:
    from convo.gateway import inspecting

    return private(await inspecting.listed(asked))


async def conversation(asked: Asked) -> Answer:
    """raises: NotFound, AmbiguousHandle"""
    from convo.gateway import inspecting

    return private(await inspecting.conversation(asked))


def private(body: bytes) -> Plain:
    return Plain(body, JSON, (*GUARD, (b"cache-control", b"no-store")))


ROUTES = (
    Route("GET", "/", page, "The inspector page.", "Text", open=True),
    Route("GET", "/favicon.ico", icon, "No picture.", "Text", open=True),
    Route("GET", f"{inspector.AT}{{name}}", file, "A file of the page.", "Text", open=True),
    Route("GET", "/inspect/api/list", listed, "What can be opened.", "Text", query=(LIMIT,)),
    Route("GET", "/inspect/api/conversations/{handle}", conversation, "One of them.", "Text", query=(SEEN,)),
)
