"""Whether what a server streams is the answer that was asked for; plain functions over its events.

A proxy may take `previous_response_id`, drop it and answer 200: an answer without its history looks
like any other one. A server that honours it says so in the first event, and is believed then. The
check comes before anything of the answer is shown.
"""

from collections.abc import Mapping

from convo.errors import NotFound, Refused, StateIgnored, StreamBroken
from convo.items import Event, Json
from convo.items.ids import LONGEST_ID, is_id

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


def continues(body: Mapping[str, Json], event: Event) -> bool:
    """Whether the server says with `event` that it goes on from where `body` asked it to.

    returns:  False while it said nothing yet, as with a keep-alive
    raises:   StateIgnored  it says that it goes on from somewhere else, or answers without saying
    """
    previous, conversation = body.get("previous_response_id"), conversation_id(body.get("conversation"))
    if not previous and not conversation:
        return True
    response = event.get("response")
    if not isinstance(response, Mapping):
        if str(event["type"]).startswith("response."):
            raise _ignored(previous or conversation)
        return False
    if previous and response.get("previous_response_id") != previous:
        raise _ignored(previous)
    if conversation and conversation_id(response.get("conversation")) != conversation:
        raise _ignored(conversation)
    return True


def check_id(kind: str, handle: str) -> None:
    """Check an id before it becomes part of a URL. raises: NotFound  it is malformed, so no server knows it"""
    if not is_id(handle):
        raise NotFound(kind, handle if len(handle) <= LONGEST_ID else f"{handle[:64]}...")


def check_body(body: Mapping[str, Json]) -> None:
    """Check the ids that a request continues from. raises: Refused"""
    for name, value in (
        ("previous_response_id", body.get("previous_response_id")),
        ("conversation", conversation_id(body.get("conversation"))),
    ):
        if value is not None and not is_id(value):
            raise Refused(f"{name} {_shown(value)!r} is not an id", code="invalid_value", param=name)


def check_response(resource: Json, provider: str) -> None:
    """Check the ids in a response, conversation or item that a server sent: handles for later requests.

    raises:  StreamBroken  one of them is malformed
    """
    if not isinstance(resource, Mapping):
        return
    output = resource.get("output")
    items = output if isinstance(output, list) else ()
    ids = (resource.get("id"), conversation_id(resource.get("conversation")), *(_id(item) for item in items))
    wrong = next((one for one in ids if one is not None and one != "" and not is_id(one)), None)
    if wrong is not None:
        raise StreamBroken(f"{provider} answered with the malformed id {_shown(wrong)!r}")


def _id(item: Json) -> Json:
    return item.get("id") if isinstance(item, Mapping) else None


def _shown(value: Json) -> str:
    """The beginning of `value`, without characters that are not printable."""
    return "".join(one if one.isprintable() else "?" for one in str(value)[:64])


def _ignored(asked: Json) -> StateIgnored:
    return StateIgnored(f"the endpoint answered without the history of {asked}")


def conversation_id(conversation: Json) -> Json:
    """A conversation travels as its id or as an object that holds it."""
    return conversation.get("id") if isinstance(conversation, Mapping) else conversation
