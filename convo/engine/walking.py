"""Asks an endpoint what it still knows of a handle, and keeps nothing.

A response names the one before it, so a chain is walked back to its start; the input of its last
response is read once and says what all of them saw. A conversation is only a list of items: which
responses went through it, no endpoint tells.
"""

from convo.endpoints.contract import Endpoint
from convo.engine.paging import PAGE, every
from convo.errors import ConvoError
from convo.history import Key, Path, Strategy
from convo.inspection import Known, Places, walked
from convo.items import Response

MOST_RESPONSES = 10_000
"""Responses of a chain that are read from a server: it may name another one before each, without an end."""

GONE = 404
"""The status of what an endpoint does not know, or no longer."""


async def walk(endpoint: Endpoint, handle: str, *, root: Key, provider: str) -> Known:
    """What `endpoint` knows of `resp_...` or `conv_...`.

    root:      where the keys of what was read begin
    provider:  the name that stands before its models'
    raises:    what the endpoint answers, when it does not know the handle or cannot be reached
    """
    if handle.startswith("conv_"):
        return await _conversation(endpoint, handle, root)
    return await _chain(endpoint, handle, root, provider)


async def _conversation(endpoint: Endpoint, handle: str, root: Key) -> Known:
    await endpoint.conversation(handle)
    items = await every(lambda after: endpoint.conversation_items(handle, after=after, limit=PAGE, order="asc"))
    path = Path(root).grow(items)
    places = Places(root)
    places.add(path)
    note = "which responses went through a conversation, an endpoint does not tell"
    return Known(handle, Strategy.CONVERSATION, endpoint.scope, path, path.head, (), places, forks=False, notes=(note,))


async def _chain(endpoint: Endpoint, handle: str, root: Key, provider: str) -> Known:
    responses, notes = await _back_from(endpoint, handle)
    context = await every(lambda after: endpoint.input_items(handle, after=after, limit=PAGE, order="asc"))
    chain = walked(responses, context, root, endpoint.scope, provider)
    return Known(
        handle=handle,
        strategy=chain.links[-1].strategy,
        scope=endpoint.scope,
        path=chain.path,
        mark=chain.path.head,
        links=chain.links,
        places=chain.places,
        at=handle,
        forks=False,
        notes=notes,
    )


async def _back_from(endpoint: Endpoint, handle: str) -> tuple[list[Response], tuple[str, ...]]:
    """The response and those before it, oldest first, and a note where the walk ended early."""
    found = {handle: await endpoint.retrieve(handle)}
    before = found[handle].get("previous_response_id")
    while before and before not in found:
        if len(found) >= MOST_RESPONSES:
            note = f"the chain is longer than {MOST_RESPONSES:,} responses; responses before {before} are not read"
            return list(reversed(found.values())), (note,)
        try:
            found[before] = await endpoint.retrieve(before)
        except ConvoError as error:
            if error.status != GONE:
                raise
            note = f"{before} is gone; what it and those before it saw counts as sent by the one after it"
            return list(reversed(found.values())), (note,)
        before = found[before].get("previous_response_id")
    return list(reversed(found.values())), ()
