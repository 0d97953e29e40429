"""What a chain goes on from, and what every turn has to say again.

An endpoint keeps a response for thirty days at least, and one that was made with `store=false` not
at all; after that nobody can go on from it. A chain with a bad place in it goes back to the last
response before that place which can still be gone on from. Where there is none, the local store
becomes the owner of what was mirrored. Instructions travel with no response: a turn that leaves them
out has none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convo.history import HERE, Link, Strategy
from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.view import ANSWERED, Step, View, own_here

DAY_S = 86_400.0
KEPT_S = 30 * DAY_S
"""Seconds for which the API keeps a response at least."""

SOON_S = 3 * DAY_S


def store_false_in_chain(view: View) -> Iterator[Fault]:
    """A response that its endpoint did not keep, where the chain goes on from it."""
    if view.strategy is not Strategy.CHAIN:
        return
    for step in _owners(view):
        if not step.link.stored:
            message = f"{step.link.id} was sent with store=false, so nothing can go on from it"
            yield Fault(message, step.ends - 1, link=step.link.id)


def anchor_expired(view: View) -> Iterator[Fault]:
    """A chain whose last response may be gone: it is older than thirty days."""
    age_s = _age_s(view.anchor, view)
    if age_s is not None and age_s >= KEPT_S and view.anchor:
        message = f"{view.anchor.id} is {age_s / DAY_S:.0f} days old, and its endpoint keeps it for 30 at least"
        yield Fault(message, view.owned - 1 if view.owned else None, link=view.anchor.id)


def anchor_expires_soon(view: View) -> Iterator[Fault]:
    """A chain whose last response may be gone within three days."""
    age_s = _age_s(view.anchor, view)
    if age_s is not None and KEPT_S - SOON_S <= age_s < KEPT_S and view.anchor:
        message = f"{view.anchor.id} may be gone in {(KEPT_S - age_s) / DAY_S:.1f} days"
        yield Fault(message, view.owned - 1 if view.owned else None, link=view.anchor.id)


def instructions_absent(view: View) -> Iterator[Fault]:
    """A turn without the instructions that one before it had; a record that sends them has mended that."""
    if view.instructions is not None:
        return
    had = ""
    for step in view.steps:
        said = step.link.parameters.get("instructions")
        if not said and had:
            message = f"{step.link.id} had no instructions; {had} had some, and no response carries them over"
            yield Fault(message, step.ends - 1, link=step.link.id)
        had = step.link.id if said else had


def unknown_age(view: View) -> str:
    """Why the age of an anchor was not judged, as a sentence; "" when it was."""
    if view.strategy is Strategy.CHAIN and view.anchor is None and (view.owned or view.partial):
        return "the age of what this chain goes on from not judged: nothing here knows when it was made"
    return ""


def go_back(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Back to before the first of these; see `back`."""
    at, first = of_items(faults)[0]
    return back(view, at, "store-false-in-chain", first.message)


def back(view: View, at: int, code: str, why: str) -> tuple[View, list[Change]]:
    """Go on from the last response before place `at` that can be gone on from; own the history here without one."""
    if view.strategy is Strategy.CHAIN:
        good = [step for step in _owners(view) if step.ends <= at and _can_continue(step.link, view)]
        if good:
            return _from(view, good[-1], code, why)
    return _owned_here(view, code, why)


def leave(code: str, view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Own the history here, before its owner lets it go."""
    return _owned_here(view, code, faults[0].message)


def send_again(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """The record sends the last instructions that there were with every turn from now on."""
    said = [step.link.parameters["instructions"] for step in view.steps if step.link.parameters.get("instructions")]
    change = Change("instructions-absent", "instructions", "the last that there were go with every turn from now on")
    return replace(view, instructions=str(said[-1])), [change]


def _from(view: View, step: Step, code: str, why: str) -> tuple[View, list[Change]]:
    kept = (*range(step.ends), *range(view.owned, len(view.items)))
    gone = [
        Change(code, "dropped", f"it stands behind {step.link.id}", view.sources[at])
        for at in range(step.ends, view.owned)
    ]
    new = replace(
        view,
        items=tuple(view.items[at] for at in kept),
        sources=tuple(view.sources[at] for at in kept),
        owned=step.ends,
        handle=step.link.id,
        anchor=step.link,
        steps=tuple(one for one in view.steps if one.ends <= step.ends),
    )
    return new, [Change(code, "anchor", f"{why}: it goes on from {step.link.id}"), *gone]


def _owned_here(view: View, code: str, why: str) -> tuple[View, list[Change]]:
    return own_here(view), [Change(code, "owner", f"{why}: the local store owns it now")]


def _owners(view: View) -> list[Step]:
    """The responses that the owner holds, oldest first."""
    return [step for step in view.steps if step.ends <= view.owned]


def _can_continue(link: Link, view: View) -> bool:
    age_s = _age_s(link, view)
    young = age_s is None or age_s < KEPT_S - SOON_S
    return link.stored and link.status in ANSWERED and link.id.startswith("resp_") and young


def _age_s(link: Link | None, view: View) -> float | None:
    """How old a response is that an endpoint may let go; None for what is kept here, or not known."""
    if link is None or view.strategy is not Strategy.CHAIN or link.scope == HERE or view.now is None:
        return None
    return view.now - link.created_at
