"""What one label of the format says, as a value.

Every label that a release ever wrote has a file in `versions/` with one of these: what came with
it, in one line; the keys that no older label has; and how a document moves over the border to the
label before. Keys that have to go are taken out by their patterns, and whatever they said is
reported as a loss; only what has somewhere to go needs a function.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from convo.items import Json
from convo.runstate.identity import Call
from convo.runstate.paths import Place, Steps, found, path, pattern
from convo.runstate.records import Kept

ITEM_LISTS = (
    "generated_items[]",
    "session_items[]",
    "last_processed_response.new_items[]",
    "last_processed_response.interruptions[]",
    "current_step.data.interruptions[]",
)
"""Where run items stand."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a document said that another label cannot: where it stood, what it was, why it is gone."""

    path: str
    what: str
    why: str


Change = tuple[Json, tuple[Loss, ...]]
"""A document and what was lost on the way to it."""

Move = Callable[[Json], Change]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a decision goes: the place of a record, and whether it holds for good there where it does at all."""

    steps: Steps
    for_good: bool = True


Room = tuple[Json, tuple[Slot, ...]]
"""A document with room for a decision, and the records that take it."""


def as_it_is(document: Json) -> Change:
    """Over a border where nothing has to move."""
    return document, ()


def none_of(document: Json) -> Iterator[Place]:
    """No places."""
    return iter(())


def no_records(document: Json) -> Iterator[Kept]:
    """No records."""
    return iter(())


def no_room(document: Json, call: Call, always: bool) -> Room | None:
    """Decisions go where the label before keeps them."""
    return None


@dataclass(frozen=True, slots=True)
class Version:
    """One label.

    label:    "1.15"
    release:  the first release of openai-agents that wrote it
    summary:  what came with it, one line
    keys:     patterns of the keys that no older label has
    values:   further places that no older label could hold, whose keys are older
    older:    moves what the label before says in another place; the rest goes by `keys`
    newer:    puts what readers of this label need where the label before had it
    reads:    the records of decisions that this label brought a place for
    room:     where it keeps a decision on a call, when not where the label before does
    """

    label: str
    release: str
    summary: str
    keys: tuple[str, ...] = ()
    values: Callable[[Json], Iterator[Place]] = none_of
    older: Move = as_it_is
    newer: Move = as_it_is
    reads: Callable[[Json], Iterator[Kept]] = no_records
    room: Callable[[Json, Call, bool], Room | None] = no_room

    @property
    def number(self) -> tuple[int, int]:
        """(1, 15): labels are compared as numbers, not as text."""
        major, minor = self.label.split(".")
        return int(major), int(minor)

    def own(self, document: Json) -> Iterator[Place]:
        """The places of `document`, agents' nested states apart, that only this label and newer ones have."""
        for words in self.keys:
            yield from found(document, pattern(words))
        yield from self.values(document)


def on_items(*keys: str) -> tuple[str, ...]:
    """The patterns of keys of a run item, wherever run items stand."""
    return tuple(f"{holder}.{key}" for holder in ITEM_LISTS for key in keys)


def lost(place: Place, why: str) -> Loss:
    """The loss of what stands at a place."""
    return Loss(path(place.steps), _short(place.value), why)


def says(value: Json) -> bool:
    """Whether a value says anything: an empty one is what readers assume where there is none."""
    return value not in (None, False, "", [], {})


def _short(value: Json) -> str:
    if isinstance(value, list | dict):
        return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    words = str(value)
    return words if len(words) <= 60 else words[:59] + "…"
