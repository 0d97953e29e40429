"""Whether what a server streams is the answer that was asked for; plain functions over its events.

A proxy may take `previous_response_id`, drop it and answer 200: an answer without its history looks
like any other one. A server that honours it says so in the first event, and is believed then. The
check comes before anything of the answer is shown.
"""

from collections.abc import Mapping

from convo.errors import StateIgnored
from convo.items import Event, Json

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


def _ignored(asked: Json) -> StateIgnored:
    return StateIgnored(f"the endpoint answered without the history of {asked}")


def conversation_id(conversation: Json) -> Json:
    """A conversation travels as its id or as an object that holds it."""
    return conversation.get("id") if isinstance(conversation, Mapping) else conversation
