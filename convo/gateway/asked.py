"""What a handler is given, and what it may come to.

A handler sees a request as values and answers with a value: a resource, or events that are told as
they come. Sockets, headers and bytes stay with whoever calls it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from convo.config import Price
from convo.endpoints.contract import Endpoint, Page, Service
from convo.gateway import refusals
from convo.gateway.going import Going
from convo.gateway.relaying import Answering
from convo.items import Json
from convo.stores.contract import Store


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the inspector page looks at beside the service.

    store:   the one under the service
    prices:  what a person said that models cost, by their full names
    going:   the answers that are being given
    """

    store: Store
    prices: Mapping[str, Price] = field(default_factory=dict)
    going: Going = field(default_factory=Going)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, read.

    inspected: what the inspector page shows
    figures:   what is counted, as far as the caller may see it, for Prometheus
    ending:    whether the server is going down
    tenant:    whose key came with it
    ids:       the variable parts of its path, by name
    query:     the parameters behind the path, by name
    body:      the JSON object that came with it; {} for none
    """

    service: Service
    inspected: Inspected
    figures: Callable[[], Awaitable[bytes]]
    ending: bool
    tenant: str
    ids: Mapping[str, str]
    query: Mapping[str, Any]
    body: dict[str, Json]

    @property
    def endpoint(self) -> Endpoint:
        """The one that holds this tenant's state."""
        return self.service.of(self.tenant)

    def array(self, name: str) -> list[Json]:
        """The array at `name` in the body; null counts as empty. raises: Refused"""
        value = self.body.get(name)
        if value is not None and not isinstance(value, list):
            raise refusals.wrong_type(name, "an array")
        return value or []

    def strings(self, name: str) -> dict[str, str]:
        """The object at `name` in the body; null counts as empty. raises: Refused"""
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise refusals.wrong_type(name, "an object")
        return value or {}

    def flag(self, name: str) -> bool:
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusals.wrong_type(name, "a boolean")
        return bool(value)

    def only(self, *names: str) -> None:
        """raises: Refused  the body has another field"""
        for name in self.body:
            if name not in names:
                raise refusals.unknown_parameter(name)


@dataclass(frozen=True, slots=True)
class Plain:
    """An answer whose bytes are made already."""

    body: bytes
    form: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200


Answer: TypeAlias = Mapping[str, Json] | Answering | Plain
Handler: TypeAlias = Callable[[Asked], Awaitable[Answer]]


def listed(page: Page) -> dict[str, Json]:
    """A page as the API lists it."""
    ids = [item["id"] for item in page.items]
    return {
        "object": "list",
        "data": list(page.items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": page.has_more,
    }
