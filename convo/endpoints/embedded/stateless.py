"""The endpoint of a server that was told to keep nothing.

Every request stands for itself: what would need something from before, or leave something behind,
is refused by its name, so that nobody takes an answer without history for one with it.
"""

from collections.abc import Mapping

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.inputs import reference
from convo.endpoints.embedded.requests import Request
from convo.items import Json

NEEDS_STATE = ("previous_response_id", "conversation", "background", "store")


def without_state(body: Mapping[str, Json]) -> dict[str, Json]:
    """`body` as it is asked where nothing is stored. raises: Refused"""
    for name in NEEDS_STATE:
        if body.get(name):
            raise refusals.no_state(name)
    return {**body, "store": False}


def check_references(request: Request) -> None:
    """raises: Refused  an item is only referred to"""
    for at, item in enumerate(request.items):
        if reference(item) is not None:
            raise refusals.no_state(f"input[{at}]")
