"""Whether a document has the shape of a state, key by key.

Only what convo or a reader of the format relies on is looked at; whatever else is in the document
is nobody's business here. A wrong kind of value in one of these places ends readers in ways that
hide the cause, or is passed over in silence and a pending call with it, so it is refused with its
place.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from convo.errors import BadState
from convo.items import Json
from convo.items.ids import is_id
from convo.runstate.identity import ARGUMENTS
from convo.runstate.nested import ACTIONS, INTERRUPTION
from convo.runstate.paths import Place, Steps, found, path, pattern
from convo.runstate.text import kind
from convo.runstate.version import ITEM_LISTS

COUNT_LIMIT = 2**53
DIGEST = re.compile(r"[0-9a-f]{64}")

WRITE_KEYS = {"session_id", "items", "before", "persisted_count"}
WRITE_MORE = {
    *("response_id", "store", "has_local_tool_outputs", "append_acknowledged", "compaction_model_exchange"),
    *("held", "reasoning_item_id_policy", "current_response"),
}
STEPS = (INTERRUPTION, "next_step_run_again")
AGENTS = ("agent", "source_agent", "target_agent")


class Rule(NamedTuple):
    """What has to stand at a place: `words` end the sentence "... must be"."""

    where: str
    words: str
    fits: Callable[[Json], bool]
    needed: bool = False


def _is(*kinds: type) -> Callable[[Json], bool]:
    return lambda value: type(value) in kinds


def _count(value: Json) -> bool:
    return type(value) is int and 0 <= value < COUNT_LIMIT


def _or_null(fits: Callable[[Json], bool]) -> Callable[[Json], bool]:
    return lambda value: value is None or fits(value)


def _agent(value: Json) -> bool:
    named = isinstance(value, dict) and isinstance(value.get("name"), str)
    return named and isinstance(value.get("identity", ""), str)


def _objects(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _input(value: Json) -> bool:
    return isinstance(value, str) or _objects(value)


def _decided(value: Json) -> bool:
    return type(value) is bool or (isinstance(value, list) and all(isinstance(call, str) for call in value))


def _record(value: Json) -> bool:
    sides = isinstance(value, dict) and _decided(value.get("approved", [])) and _decided(value.get("rejected", []))
    return sides and isinstance(value.get("rejection_messages") or {}, dict)


def _actions(value: Json) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and isinstance(one.get("tool_call"), dict) for one in value
    )


def _hosted(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("identity"), dict) and _record(value.get("decision"))


def _owned(value: Json) -> bool:
    said = isinstance(value, dict) and isinstance(value.get("tool_key"), str)
    return said and _agent(value.get("agent")) and _record(value.get("decision"))


def _bound(value: Json) -> bool:
    """An entry of the ledger: its kind, two digests, and marks that agree with each other."""
    if not isinstance(value, dict) or str(value.get("type")) not in ARGUMENTS:
        return False
    digests = (value.get("approval_scope"), value.get("fingerprint"))
    marks = (value.get("executed"), value.get("completed"))
    exact = all(isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in digests)
    return exact and all(type(mark) is bool for mark in marks) and marks != (False, True)


def _write(value: Json) -> bool:
    if not isinstance(value, dict) or not WRITE_KEYS <= set(value) <= WRITE_KEYS | WRITE_MORE:
        return False
    return isinstance(value["session_id"], str) and _count(value["persisted_count"]) and bool(value["items"])


RULES = (
    Rule("$schemaVersion", "a string", _is(str), needed=True),
    Rule("current_agent", "an object with the agent's name", _agent, needed=True),
    Rule("original_input", "a string or a list of items", _input, needed=True),
    Rule("context", "an object", _is(dict), needed=True),
    Rule("max_turns", "a number of turns, or null for no limit", _or_null(_count), needed=True),
    Rule("current_turn", "a number of turns", _count, needed=True),
    Rule("conversation_id", "an id or null", _or_null(is_id)),
    Rule("previous_response_id", "an id or null", _or_null(is_id)),
    Rule("auto_previous_response_id", "true or false", _is(bool)),
    Rule("pending_input", "a list of items", _objects),
    Rule("current_turn_persisted_item_count", "a number of items", _count),
    Rule("tool_use_tracker", "an object", _is(dict)),
    Rule("model_responses", "a list of responses", _objects),
    Rule("model_responses[].output", "a list of items", _objects),
    Rule("last_processed_response", "an object or null", _is(dict, type(None))),
    *(Rule(f"last_processed_response.{key}", "a list of actions, each with its call", _actions) for key in ACTIONS),
    Rule("last_processed_response.functions[].agent_run_state", "a state", _is(dict)),
    Rule("current_step", "an object or null", _is(dict, type(None))),
    Rule("current_step.type", f"one of {', '.join(STEPS)}", lambda value: value in STEPS),
    Rule("current_step.data", "an object", _is(dict)),
    Rule("current_step.data.interruptions", "a list", _is(list)),
    Rule("current_step.data.interruptions[].agent", "an object with the agent's name", _agent),
    Rule("context.context_meta", "an object or null", _is(dict, type(None))),
    Rule("context.approvals", "an object", _is(dict)),
    Rule("context.approvals.*", "a record of decisions", _record),
    Rule("context.tool_invocations", "an object", _is(dict)),
    Rule("context.tool_invocations.*", "a kind of call, two digests, and marks that agree", _bound),
    Rule("context.hosted_mcp_approvals", "a list", _is(list)),
    Rule("context.hosted_mcp_approvals[]", "a record of decisions on a hosted tool", _hosted),
    Rule("context.function_tool_approvals", "a list", _is(list)),
    Rule("context.function_tool_approvals[]", "a record of decisions with its agent and tool", _owned),
    Rule("context.usage", "an object", _is(dict)),
    Rule("model_responses[].usage", "an object", _is(dict)),
    Rule("pending_session_write", "a write with the keys of its label, and items", _or_null(_write)),
    Rule("terminal_unrecoverable", "true, or not there", lambda value: value is True),
    *(
        Rule(f"{usage}.{key}", "a number of tokens or requests", _count)
        for usage in ("context.usage", "model_responses[].usage")
        for key in ("requests", "input_tokens", "output_tokens", "total_tokens")
    ),
)
COMPILED = tuple((rule, pattern(rule.where)) for rule in RULES)

LISTS = tuple(pattern(holder.removesuffix("[]")) for holder in ITEM_LISTS)
CALLS = tuple(
    map(pattern, ("model_responses[].output[]", *(f"last_processed_response.{key}[].tool_call" for key in ACTIONS)))
)
WORDS = ("name", "namespace", "arguments")


def check(document: Json, way: Steps = ()) -> None:
    """Look at one state, the states in it apart. raises: BadState"""
    for rule, steps in COMPILED:
        for place in found(document, steps):
            if not rule.fits(place.value):
                raise BadState(path((*way, *place.steps)), f"must be {rule.words}, not {_said(place.value)}")
        if rule.needed and rule.where not in document:
            raise BadState(path((*way, rule.where)), "is missing; no release reads a state without it")
    for place in chain(_without_an_item(document), _called_oddly(document)):
        raise BadState(path((*way, *place.steps)), f"must be {place.value}")
    _check_boundary(document, way)


def _said(value: Json) -> str:
    """A value in a few words: what kind it is, or what it is where that is short."""
    words = repr(value) if isinstance(value, str) else str(value)
    return words if type(value) in (str, int, float) and len(words) < 24 else kind(value)


def _without_an_item(document: Json) -> Iterator[Place]:
    """The places in lists of run items where no run item stands, with what should be there."""
    for steps in LISTS:
        for way, listed in found(document, steps):
            if not isinstance(listed, list):
                yield Place(way, f"a list of run items, not {kind(listed)}")
                return
            for index, item in enumerate(listed):
                wrong = _wrong_in(item, (*way, index))
                if wrong is not None:
                    yield wrong


def _wrong_in(item: Json, way: Steps) -> Place | None:
    if not isinstance(item, dict) or not isinstance(item.get("raw_item"), dict):
        return Place(way, "a run item with its raw_item")
    for key in AGENTS:
        if not (item.get(key) is None or isinstance(item[key], str) or _agent(item[key])):
            return Place((*way, key), "an object with the agent's name")
    return _no_string(item["raw_item"], (*way, "raw_item"))


def _called_oddly(document: Json) -> Iterator[Place]:
    """The places where a function's call says otherwise than in a string what is called, or with what."""
    for steps in CALLS:
        for way, raw in found(document, steps):
            wrong = _no_string(raw, way)
            if wrong is not None:
                yield wrong


def _no_string(raw: Json, way: Steps) -> Place | None:
    if raw.get("type") == "function_call":
        for field in WORDS:
            if not isinstance(raw.get(field), str | None):
                return Place((*way, field), f"a string, not {kind(raw[field])}")
    return None


def _check_boundary(document: Json, way: Steps) -> None:
    """raises: BadState  the results that belong to the last response would begin after all there are"""
    steps = ("last_processed_response", "tool_output_guardrail_result_start")
    results = document.get("tool_output_guardrail_results") or []
    for place in found(document, steps):
        if place.value is not None and not (_count(place.value) and place.value <= len(results)):
            raise BadState(path((*way, *steps)), f"points past the {len(results)} results that there are")
