"""Decides on a state as the flags of `convo resume` ask, and writes it.

Everything is decided before anything is written, and told on stderr once it is. The exit
code is 3 as long as a call waits for somebody else.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from convo.cli.choosing import ALL, chosen, kept_text, outcome_text, rank
from convo.cli.keys import signing_key
from convo.cli.states import PIPE, from_pipe, state_at
from convo.engine.state_file import load, save
from convo.runstate import (
    LABELS,
    VERSIONS,
    Loss,
    State,
    Verdict,
    decided,
    edited,
    named,
    pending,
    relabelled,
    signed,
    summary,
    text,
    unsigned,
    verify,
)
from convo.ui.answer import safe
from convo.ui.labelled import counted
from convo.ui.pausing import lost
from convo.ui.rewriting import in_an_editor

PAUSED = 3

(OWNED,) = (version for version in VERSIONS if version.label == "1.18")
"""From this label on a sticky decision on a function belongs to an agent; newer readers ignore older ones."""


class Asked(NamedTuple):
    """What the flags say of calls; each word is a call's id, a tool's name or "all"."""

    approve: tuple[str, ...]
    reject: tuple[str, ...]
    edit: tuple[str, ...]
    always: bool


class Written(NamedTuple):
    """What is to be written, where to, and what is to be proved."""

    out: str
    schema: str | None
    sign: bool
    verify: bool
    key_env: str
    as_json: bool


class Choice(NamedTuple):
    """What one flag says of the calls that it names."""

    verdict: Verdict
    edits: bool = False


class Signing(NamedTuple):
    """Where the key is, and whether a state without a signature is refused."""

    key_env: str
    verify: bool


def proved(place: str, config: Path | None, signing: Signing) -> State | None:
    """The state that is to be gone on with; None when `place` names a run in the store.

    raises:  NotSigned, BadState, Unreadable, Usage
    """
    state = state_at(place, config)
    if state is None and ("/" in place or place.endswith(".json")):
        state = load(place)  # says that there is no such file, or that it is no state
    if state is None:
        return None
    if signing.verify:
        verify(state, signing_key(signing.key_env))
    return unsigned(state)


def decide(place: str, asked: Asked, written: Written) -> int:
    """Decide on the state at `place` and write it; returns the exit code.

    raises:  Usage, NotFound, BadState, NotSigned, StoreFault  nothing was written
    """
    key = signing_key(written.key_env) if written.sign or written.verify else b""
    state = from_pipe() if place == PIPE else load(place)
    if written.verify:
        verify(state, key)
    done = _as_asked(unsigned(state), asked, written.schema)
    _write(signed(done.state, key) if written.sign else done.state, written.out)
    old = done.sticky and done.state.version.number < OWNED.number
    for words in (*done.notes, *([_not_sticky(done.state.label)] if old else []), *lost(done.losses)):
        sys.stderr.write(safe(words) + "\n")
    return _told(done.state, done.losses, written)


class Done(NamedTuple):
    """What is written, and what is told of it.

    notes:   what was decided, in words
    sticky:  whether a decision on a function holds for later calls as well
    """

    state: State
    notes: tuple[str, ...]
    losses: tuple[Loss, ...] = ()
    sticky: bool = False


def _as_asked(state: State, asked: Asked, label: str | None) -> Done:
    """The decided state under the label asked for; decided on under the newer of the two, which has words for more."""
    if label is None:
        return _decided(state, asked)
    if label in LABELS[LABELS.index(state.label) :]:
        state, losses = relabelled(state, label)
        return _decided(state, asked)._replace(losses=losses)
    done = _decided(state, asked)
    state, losses = relabelled(done.state, label)
    return done._replace(state=state, losses=losses)


def _decided(state: State, asked: Asked) -> Done:
    choices, before = _choices(state, asked), state.verdicts
    notes = [] if state.pending else ["nothing waits in this state"]
    meant = [(one, choices[one.id]) for one in state.pending if one.id in choices]
    notes += _kept(state, asked, choices)
    for one, choice in meant:
        state = edited(state, one, in_an_editor(str(one.call.arguments))) if choice.edits else state
    waiting = {one.id: one for one in state.pending}
    for verdict, alike in groupby(meant, lambda one: one[1].verdict):
        state = decided(state, [waiting[one.id] for one, _ in alike], verdict)
    for one, (verdict, edits) in meant:
        approve, was = verdict.approve, before.get(one.id)
        notes.append(outcome_text(one.call.tool, one.id, approve=approve, was=was, edited=edits, always=verdict.always))
    sticky = any(choice.verdict.always and one.call.is_function for one, choice in meant)
    return Done(state, tuple(notes), sticky=sticky)


def _kept(state: State, asked: Asked, choices: Mapping[str, Choice]) -> Iterator[str]:
    """Notes on the decisions that differ from what a name or `all` asks, and that stay as they are."""
    flags = [(words, True) for words in (*asked.approve, *asked.edit)]
    flags += [(words.partition("=")[0], False) for words in asked.reject]
    for one in state.pending:
        was = state.verdicts.get(one.id)
        names = (ALL, one.call.tool, *one.call.keys)
        if was is not None and one.id not in choices and any(w in names and a != was for w, a in flags):
            yield kept_text(one.call.tool, one.id, was)


def _not_sticky(label: str) -> str:
    """Say that newer releases ignore the sticky decisions on functions in a state of this label."""
    return (
        f"openai-agents {OWNED.release} and later ignore --always in a state of label {label} and ask again,"
        f" for these calls too; --schema {OWNED.label} writes a label that keeps it"
    )


def _choices(state: State, asked: Asked) -> dict[str, Choice]:
    """What is asked for each call. raises: Usage  two flags want different things of one; NotFound"""
    said = [
        *((words, Verdict(True, None, asked.always), False) for words in asked.approve),
        *((words, Verdict(True, None, asked.always), True) for words in asked.edit),
        *((*_reason(state, words, asked), False) for words in asked.reject),
    ]
    return chosen(
        (one.id, rank(words, one.id), Choice(verdict, edits))
        for words, verdict, edits in said
        for one in named(state, words)
    )


def _reason(state: State, words: str, asked: Asked) -> tuple[str, Verdict]:
    """`CALL=WHY` in its two parts; a call whose id has a sign of equality is still itself."""
    if any(words == one.id for one in state.pending):
        return words, Verdict(False, None, asked.always)
    call, _, why = words.partition("=")
    return call, Verdict(False, why or None, asked.always)


def _write(state: State, out: str) -> None:
    if out == PIPE:
        sys.stdout.write(text(state))
    else:
        save(state, out)


def _told(state: State, losses: Sequence[Loss], written: Written) -> int:
    left = state.undecided()
    if written.as_json:
        said = summary(state)
        done = {"state_file": written.out, "schema_version": state.label, "decisions": said["decisions"]}
        sys.stdout.write(
            json.dumps({**done, "pending": list(map(pending, left)), "losses": [_lost(one) for one in losses]}) + "\n"
        )
    elif left:
        sys.stderr.write(f"{counted(len(left), 'call')} still undecided: {safe(', '.join(one.id for one in left))}\n")
    return PAUSED if left else 0


def _lost(one: Loss) -> dict[str, str]:
    return {"path": one.path, "what": one.what, "why": one.why}
