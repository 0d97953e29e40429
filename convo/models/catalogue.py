"""Which models a server says it has.

Servers of all kinds answer `GET /models` alike, so whoever holds a connection to one can be a
catalogue. It is asked by a person who waits, and perhaps together with others: whoever does not
answer soon is passed over.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from convo.errors import EndpointFault, KeyRefused, StreamBroken, Unreachable
from convo.items import Json

PATIENCE_S = 10.0
"""Seconds that a server has to show that it is there."""

FORBIDDEN = 403
"""The status for a key that is right and may not do this."""


@runtime_checkable
class Catalogue(Protocol):
    """A server that can be asked which models it has."""

    async def models(self) -> Sequence[str]:
        """Their names as it takes them, without the provider. raises: EndpointFault"""
        ...

    async def warm(self, model: str) -> None:
        """Do what needs no answer."""
        ...

    async def aclose(self) -> None: ...


async def ask(server: Catalogue, who: str, *, within_s: float) -> Sequence[str]:
    """The names that `server` gives, which is closed behind it.

    who:       what it is called in errors
    within_s:  seconds for the answer; loading what it takes to ask does not count
    raises:    EndpointFault
    """
    try:
        await server.warm("")
        async with asyncio.timeout(within_s):
            return await server.models()
    except TimeoutError as late:
        raise Unreachable(f"{who} did not answer in {within_s:g} seconds") from late
    finally:
        await server.aclose()


async def check_reachable(server: Catalogue, who: str, *, within_s: float = PATIENCE_S) -> None:
    """Find out whether a server answers and takes the key, by its list of models, which costs nothing.

    Another refusal says nothing about answers: some servers have no list, and some keys may not read it.

    raises:  Unreachable, KeyRefused
    """
    try:
        await server.warm("")
        async with asyncio.timeout(within_s):
            await server.models()
    except TimeoutError as late:
        raise Unreachable(f"{who} did not answer in {within_s:g} seconds") from late
    except Unreachable:
        raise
    except KeyRefused as refused:
        if refused.status != FORBIDDEN and "scope" not in refused.message:
            raise
    except EndpointFault:
        return


def names(listed: Json, who: str) -> Sequence[str]:
    """The names in what a server answered: a list, or an object that holds one; null where there are none.

    raises:  StreamBroken  it is neither
    """
    found = listed.get("data") or [] if isinstance(listed, Mapping) and "data" in listed else listed
    if isinstance(found, list):
        ids = [one["id"] for one in found if isinstance(one, Mapping) and isinstance(one.get("id"), str)]
        if len(ids) == len(found):
            return ids
    raise StreamBroken(f"{who} answered with something that is not a list of models", hint="check its base_url")
