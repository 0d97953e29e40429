"""What a kept run waits for, and decisions on it, without its agents.

A decision has to be possible where the agents are not: on another machine, by somebody who may say
yes and has no business with the code. So this reads and changes the document that `keeping` makes,
and nothing else. What only a tool's own schema can say, whether other arguments fit, is looked at
when the run is gone on with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convo.errors import BadState, IllegalMove, InputFault, UnknownSchema
from convo.items import Item, Json
from convo.run.answers import output_item, turned_down, verdict_item
from convo.run.events import Decided, Given
from convo.run.keeping import CHANGED, KNOWN, PHASE_WORDS, PHASES, STAGE_WORDS, STAGES, VERSION
from convo.run.state import OPEN as WAITS
from convo.run.state import Call, Phase, Stage

Document = Mapping[str, Any]

OPEN = tuple(STAGE_WORDS[stage] for stage in WAITS)
WAITING, UNKNOWN = STAGE_WORDS[Stage.WAITING], STAGE_WORDS[Stage.UNKNOWN]
READY, DONE, INSIDE = STAGE_WORDS[Stage.READY], STAGE_WORDS[Stage.DONE], STAGE_WORDS[Stage.INSIDE]
PAUSED = PHASE_WORDS[Phase.PAUSED]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One call that a person has to decide on.

    tool:       the name that a person knows it by: `refund`, `crm.refund`
    arguments:  as the model wrote them, or as they were changed
    agent:      the identity of the agent that asks
    unknown:    it had started, and nobody knows what came of it
    hosted:     it runs at the provider
    verdict:    approved (True) or rejected (False) at this pause, and not performed yet; None: undecided
    """

    call_id: str
    tool: str
    arguments: str
    agent: str
    unknown: bool = False
    hosted: bool = False
    verdict: bool | None = None


def waiting(document: Document) -> tuple[Waiting, ...]:
    """The calls of a kept run that wait for a person; none where it is not paused. raises: UnknownSchema, BadState"""
    return tuple(call for call in decidable(document) if call.verdict is None)


def decidable(document: Document) -> tuple[Waiting, ...]:
    """The calls that wait, and those decided at this pause, whose decision can be changed. raises: as `waiting`"""
    if document.get("version") != VERSION:
        raise UnknownSchema("$.version", repr(document.get("version"))[:20], KNOWN)
    try:
        if document["phase"] != PAUSED:
            return ()
        return tuple(_decidable(document))
    except (KeyError, TypeError, IndexError) as wrong:
        raise BadState("$", f"is no run that was kept whole ({wrong!r})", hint=CHANGED) from wrong


def _decidable(document: Document) -> Iterator[Waiting]:
    """As `decidable`, with the calls of runs inside a call among them."""
    for call in document["batch"]:
        if call["stage"] in OPEN or _is_decided(call):
            yield _waiting(call, document["agent"])
        elif call["stage"] == INSIDE:
            yield from decidable(call["inner"]["run"])


def _is_decided(call: Document) -> bool:
    """As `Call.is_decided`."""
    return call.get("verdict") is not None and not call["ran"] and call["stage"] in (READY, DONE)


def decided(document: Document, events: Sequence[Decided | Given]) -> dict[str, Json]:
    """`document` with every decision in it; nothing runs by one.

    raises:  IllegalMove  the run is not paused, or a call does not wait
             InputFault   arguments that are none, or where none can be changed
    """
    waiting(document)  # says so where it is no such document
    changed = dict(document)
    for event in events:
        changed = _told(changed, event)
    return changed


def _told(document: dict[str, Json], event: Decided | Given) -> dict[str, Json]:
    """`document` after one decision, which may be about a call of a run inside one of its own."""
    call = _around(document, event.call_id)
    if call is not None:
        inner = {**call["inner"], "run": _told(call["inner"]["run"], event)}
        return _with(document, {**call, "inner": inner})
    return _given(document, event) if isinstance(event, Given) else _decided(document, event)


def _around(document: Document, call_id: str) -> Document | None:
    """The call in whose own run that call waits, or was decided on; None where it is none of an inner run's."""
    own = next((one for one in document["batch"] if one["id"] == call_id), None)
    if own and own["stage"] in OPEN:
        return None
    inside = [one for one in document["batch"] if one["stage"] == INSIDE]
    waits = (one for one in inside if any(call_id == it.call_id for it in waiting(one["inner"]["run"])))
    found = next(waits, None)
    if found or own:
        return found
    holds = [one for one in inside if any(call_id == it.call_id for it in decidable(one["inner"]["run"]))]
    if len(holds) > 1:
        why = f"call {call_id} is decided in {len(holds)} runs; it could mean either"
        raise IllegalMove(PHASES[document["phase"]], "Decided", why)
    return holds[0] if holds else None


def asked(call: Call, agent: str) -> Waiting:
    """The same of a call of a run that is at hand."""
    unknown = call.stage is Stage.UNKNOWN
    verdict = call.verdict if call.is_decided else None
    hosted = call.tool is None
    return Waiting(call.id, named(call.lookup), call.arguments, agent, unknown=unknown, hosted=hosted, verdict=verdict)


def _waiting(call: Document, agent: str) -> Waiting:
    hosted = call["tool"] is None
    return Waiting(
        call_id=call["id"],
        tool=named(call["lookup"]),
        arguments=call["arguments"],
        agent=agent,
        unknown=call["stage"] == UNKNOWN,
        hosted=hosted,
        verdict=call["verdict"] if _is_decided(call) else None,
    )


def named(lookup: Sequence[str]) -> str:
    """The name of a tool for people, from its name in layers."""
    return ".".join(lookup[1:])


def _given(document: dict[str, Json], event: Given) -> dict[str, Json]:
    call = _open(document, event.call_id, event, (UNKNOWN,))
    said = {**call, "stage": DONE, "output": output_item(_plain(call), event.output), "ran": True}
    return _with(document, said)


def _decided(document: dict[str, Json], event: Decided) -> dict[str, Json]:
    decided = (one for one in document["batch"] if one["id"] == event.call_id and _is_decided(one))
    call = next(decided, None) or _open(document, event.call_id, event, OPEN)
    _check_arguments(call, event)
    document = _with(document, _verdict(call, event))
    if not event.always:
        return document
    for other in document["batch"]:
        if other["stage"] == WAITING and other["lookup"] == call["lookup"]:
            document = _with(document, _verdict(other, event))
    return {**document, "always": [*_others(document, call), _lasting(document, call, event)]}


def _check_arguments(call: Document, event: Decided) -> None:
    if event.arguments is None:
        return
    if not event.approve or event.always or call["tool"] is None:
        raise InputFault("only one approved call of a function takes other arguments", hint="approve it, this once")
    try:
        fits = isinstance(json.loads(event.arguments), dict)
    except (ValueError, RecursionError):
        fits = False
    if not fits:
        raise InputFault(f"the arguments for {event.call_id} are no JSON object", hint="nothing was changed")


def _verdict(call: Document, event: Decided) -> dict[str, Json]:
    call = {key: value for key, value in call.items() if key != "verdict"}
    if call["stage"] != UNKNOWN:
        call["verdict"] = event.approve
    if call["tool"] is None:
        said = verdict_item(_plain(call), event.approve, None if event.approve else event.message)
        return {**call, "stage": DONE, "output": said}
    if not event.approve:
        return {**call, "stage": DONE, "output": turned_down(_plain(call), event.message)}
    arguments = call["arguments"] if event.arguments is None else event.arguments
    return {**call, "stage": READY, "arguments": arguments, "output": None}


def _others(document: Document, call: Document) -> list[Json]:
    """What was decided for good of other tools."""
    mine = document["agent"], call["lookup"]
    return [one for one in document["always"] if (one["agent"], one["lookup"]) != mine]


def _lasting(document: Document, call: Document, event: Decided) -> dict[str, Json]:
    said = {"agent": document["agent"], "lookup": call["lookup"], "tool": call["tool"], "approve": event.approve}
    return said if event.approve or event.message is None else {**said, "message": event.message}


def _open(document: Document, call_id: str, event: object, stages: Sequence[str]) -> Document:
    found = next((call for call in document["batch"] if call["id"] == call_id), None)
    if found is None or document["phase"] != PAUSED or found["stage"] not in stages:
        why = f"there is no call {call_id}" if found is None else f"call {call_id}: {STAGES[found['stage']]}"
        raise IllegalMove(PHASES[document["phase"]], type(event).__name__, why)
    return found  # type: ignore[no-any-return]


def _with(document: dict[str, Json], call: Document) -> dict[str, Json]:
    batch = [dict(call) if one["id"] == call["id"] else one for one in document["batch"]]
    return {**document, "batch": batch}


def _plain(call: Document) -> Call:
    """As much of a call as the items that answer it are made of."""
    item: Item = call["item"]
    return Call(item, call["id"], STAGES[call["stage"]], tuple(call["lookup"]), arguments=call["arguments"])
