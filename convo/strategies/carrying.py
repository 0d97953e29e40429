"""What of a history another owner can be given, and why the rest cannot.

A history is mostly words, and words go anywhere. What a server made for itself does not: thoughts
that only it can open, ids that only it knows, the traces of tools that it ran. Each such thing is
named before anything is moved, by a code that stays and a sentence; nothing is left out silently.

    left out    the new owner never gets it
    changed     it goes, in another form
    not sent    it stays in the record, and no model sees it again
    kept        it goes as it is, and the new owner may refuse it

An item that waits for its owner's word is not formed here: its turn does that when it is sent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote

from convo.history import HERE, OWNERS, Scope, Strategy
from convo.items import Item, Json, call_id, is_call, is_output, kind, plain, resendable
from convo.strategies.held import is_answer

SEAL = "encrypted_content"
NAMED_SEAL = "convo1:"
"""How a seal begins that a convo handed on: its maker stands behind it."""

OWN_SEAL = "convoseal1:"
"""How a window begins that a convo sealed itself."""

REFERENCE = "item_reference"

ORDINARY = frozenset({"message", "reasoning", "compaction", REFERENCE})
"""Kinds that are neither calls of the client's tools nor traces of the server's own."""


class Effect(StrEnum):
    LEFT_OUT = "left out"
    CHANGED = "changed"
    NOT_SENT = "not sent"
    KEPT = "kept"


class Maker(NamedTuple):
    """Who made an item; None where nobody knows. `model` is "provider/model"."""

    scope: Scope | None = None
    model: str | None = None


NOBODY = Maker()
"""Who made what a client said, and what came from nobody knows where."""


@dataclass(frozen=True, slots=True)
class Said:
    """One item of the history that is handed over.

    confirmed:  its owner has it; else it was said and waits
    """

    item: Item
    maker: Maker = NOBODY
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The owner that is to have it, and the model that would answer there."""

    strategy: Strategy
    scope: Scope
    model: str

    @property
    def remembers(self) -> bool:
        return OWNERS[self.strategy].remembers


class Loss(NamedTuple):
    """One kind of thing that does not go over as it is; `places` count the items from 1."""

    code: str
    effect: Effect
    why: str
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """What goes over.

    items:      in the form in which the new owner has them
    confirmed:  how many of them the old owner had confirmed
    """

    items: tuple[Item, ...]
    confirmed: int
    losses: tuple[Loss, ...]


def carry(said: Sequence[Said], target: Target) -> Carried:
    """Decide what of `said` goes to `target`."""
    report = Report()
    formed = [_formed(one, target, report.at(place)) for place, one in enumerate(said, 1)]
    _follow(said, formed, report)
    _pair(formed, report)
    kept = [(one, item) for one, item in zip(said, formed, strict=True) if item is not None]
    return Carried(tuple(item for _, item in kept), sum(one.confirmed for one, _ in kept), report.losses())


Tell = Callable[..., None]


class Report:
    """Gathers losses by their code, effect and reason, in the order in which they are met."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Effect, str], list[int]] = {}

    def at(self, place: int) -> Tell:
        def tell(code: str, effect: Effect, why: str) -> None:
            self._found.setdefault((code, effect, why), []).append(place)

        return tell

    def losses(self) -> tuple[Loss, ...]:
        return tuple(Loss(*named, tuple(places)) for named, places in self._found.items())


def _formed(one: Said, target: Target, tell: Tell) -> Item | None:
    """One item as `target` gets it; None when it stays behind."""
    for rule in RULES:
        found = rule(one, target)
        if found is None:
            continue
        code, effect, why = found
        tell(code, effect, why)
        if effect is Effect.LEFT_OUT:
            return None
    item: Item | None = _at_home(one, target, tell)
    if item is not None and target.remembers and "id" in item:
        item = _without_id(item, tell)
    return item if item is None or target.strategy is not Strategy.CONVERSATION else _as_words(item, one, tell)


Found = tuple[str, Effect, str] | None
Rule = Callable[[Said, Target], Found]


def _reasoning(one: Said, target: Target) -> Found:
    if kind(one.item) != "reasoning" or one.item.get(SEAL):
        return None
    effect = Effect.LEFT_OUT if target.remembers else Effect.NOT_SENT
    return "reasoning_unsealed", effect, "reasoning that is not sealed lives only at the server that made it"


def _sealed(one: Said, target: Target) -> Found:
    if not isinstance(one.item.get(SEAL), str) or not one.item[SEAL]:
        return None
    maker = _sealer(one)
    if maker.scope is None and maker.model is None:
        return _seal_of_nobody(one, target)
    if _can_open(maker, target, kind(one.item)):
        return None
    by = " at ".join(str(part) for part in (maker.model, maker.scope) if part)
    if kind(one.item) == "reasoning":
        return "reasoning_elsewhere", Effect.LEFT_OUT, f"reasoning that only {by} can open"
    return "compaction_elsewhere", Effect.LEFT_OUT, f"a summary of what came before it, which only {by} can open"


def _seal_of_nobody(one: Said, target: Target) -> Found:
    if kind(one.item) == "reasoning" and target.remembers:
        return "reasoning_unknown", Effect.LEFT_OUT, "sealed reasoning, and nobody knows who could open it"
    return "seal_unknown", Effect.KEPT, "nobody knows who sealed it; another model or endpoint refuses it"


def _hosted(one: Said, target: Target) -> Found:
    if not _is_trace(one.item) or one.maker.scope in (None, target.scope):
        return None
    return "hosted_elsewhere", Effect.LEFT_OUT, f"the trace of a tool that {one.maker.scope} ran"


def _is_trace(item: Item) -> bool:
    """Whether it is what a server's own tool did: a search, an image, code that it ran."""
    return not (kind(item) in ORDINARY or is_call(item) or is_output(item))


def _referred(one: Said, target: Target) -> Found:
    if kind(one.item) != REFERENCE or one.maker.scope == target.scope:
        return None
    return "reference_elsewhere", Effect.LEFT_OUT, "it only names an item that another server keeps"


RULES: tuple[Rule, ...] = (_reasoning, _sealed, _hosted, _referred)


# -- forms ----------------------------------------------------------------------------------------


def _at_home(one: Said, target: Target, tell: Tell) -> Item | None:
    """The item without uploaded files that only its own server has; None when nothing else was in it."""
    content = one.item.get("content")
    if not isinstance(content, list) or one.maker.scope in (None, target.scope):
        return one.item
    rest = [part for part in content if not _uploaded(part)]
    if len(rest) == len(content):
        return one.item
    why = f"a file that was uploaded to {one.maker.scope}"
    tell("file_elsewhere", Effect.CHANGED if rest else Effect.LEFT_OUT, why)
    return {**one.item, "content": rest} if rest else None


def _uploaded(part: Json) -> bool:
    return isinstance(part, dict) and isinstance(part.get("file_id"), str)


def _without_id(item: Item, tell: Tell) -> Item:
    sent = resendable(item)
    if sent is None or sent is item:
        return item
    tell("item_ids", Effect.CHANGED, "the new owner gives its own ids")
    return sent


def _as_words(item: Item, one: Said, tell: Tell) -> Item | None:
    """What was cut off as a conversation can keep it, once it was confirmed."""
    if not one.confirmed or plain(item) is item:
        return item
    words = plain(item)
    why = "it was cut off, and only its words can be said again" if words else "it was cut off and says nothing"
    tell("cut_off", Effect.CHANGED if words else Effect.LEFT_OUT, why)
    return words


def _follow(said: Sequence[Said], formed: list[Item | None], report: Report) -> None:
    """Leave out what a server's own tools did after a thought that stays behind: it takes both or neither."""
    lost = False
    for at, one in enumerate(said):
        if kind(one.item) == "reasoning":
            lost = formed[at] is None
        elif not is_answer(one.item):
            lost = False
        elif lost and formed[at] is not None and _is_trace(one.item):
            why = "the trace of a tool, which needs the thought before it"
            report.at(at + 1)("hosted_without_reasoning", Effect.LEFT_OUT, why)
            formed[at] = None


def _pair(formed: list[Item | None], report: Report) -> None:
    """Tell calls that wait for an output, and leave out outputs whose call is not there."""
    calls: dict[str, int] = {}
    for place, item in enumerate(formed, 1):
        named = call_id(item) if item else None
        if item is None or named is None:
            continue
        if is_call(item):
            calls[named] = place
        elif is_output(item) and calls.pop(named, None) is None and not _answered(formed[: place - 1], named):
            report.at(place)("orphan_output", Effect.LEFT_OUT, "an output whose call is not in this history")
            formed[place - 1] = None
    for place in calls.values():
        report.at(place)("open_call", Effect.KEPT, "a call that waits for its output: say that first, or convo repair")


def _answered(before: Iterable[Item | None], named: str) -> bool:
    return any(item is not None and is_call(item) and call_id(item) == named for item in before)


# -- who made it ----------------------------------------------------------------------------------


def _sealer(one: Said) -> Maker:
    """Who sealed an item: the server that it came from, else what the seal itself says."""
    seal = one.item[SEAL]
    if one.maker.scope not in (None, HERE):
        return one.maker
    if seal.startswith(NAMED_SEAL):
        return Maker(HERE, unquote(seal.split(":")[1]))
    return Maker(HERE) if seal.startswith(OWN_SEAL) else one.maker


def _can_open(maker: Maker, target: Target, named: str) -> bool:
    if maker.scope not in (None, target.scope):
        return False
    return named != "reasoning" or maker.model in (None, target.model)
