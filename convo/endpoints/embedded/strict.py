"""What the real API refuses and this endpoint otherwise takes.

Models of other providers have no use for most of it, so convo's endpoint is lenient unless it is told
not to be. Strict, it is a place to try out what a client sends before it is sent to where it costs:
thoughts must be whole and followed, arguments must be JSON, and a compaction must not cut a pair or
stand on top of a history that is here already.
"""

import json
from collections.abc import Collection, Sequence

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.pairs import check_pairs
from convo.errors import Refused
from convo.items import Item, is_assistant, is_output, kind

FOLLOWS_NOTHING = frozenset({"compaction", "compaction_trigger", "mcp_approval_response"})


def check_strictly(given: Sequence[Item], known: Collection[str], saw: Sequence[Item]) -> None:
    """What a request gives, against a history whose items have the ids in `known`.

    saw:     that history with what is given behind it
    raises:  Refused  in the real API's words
    """
    for at, item in enumerate(given):
        if kind(item) == "reasoning":
            _check_thought(at, item, given[at + 1 :], known)
        elif kind(item) == "function_call":
            _check_arguments(at, item)
        elif kind(item) == "compaction" and len(saw) > len(given):
            raise Refused("A compaction item cannot follow the history that it stands for", param=f"input[{at}]")
    folded = max((at for at, item in enumerate(saw) if kind(item) == "compaction"), default=-1)
    check_pairs(saw[folded + 1 :])


def _check_thought(at: int, item: Item, behind: Sequence[Item], known: Collection[str]) -> None:
    if not isinstance(item.get("summary"), list):
        raise refusals.missing(f"input[{at}].summary")
    alone = not item.get("encrypted_content") and not item.get("content")
    if alone and item.get("id") not in known:
        raise refusals.no_item(str(item.get("id")))
    following = next((one for one in behind if kind(one) != "reasoning"), None)
    if following is None or not _is_models(following):
        name = item.get("id") or f"input[{at}]"
        raise Refused(
            f"Item '{name}' of type 'reasoning' was provided without its required following item", param="input"
        )


def _is_models(item: Item) -> bool:
    if kind(item) == "message":
        return is_assistant(item)
    return not is_output(item) and kind(item) not in FOLLOWS_NOTHING


def _check_arguments(at: int, item: Item) -> None:
    try:
        found = json.loads(item["arguments"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise refusals.wrong_type(f"input[{at}].arguments", "the text of a JSON object", "something else")
