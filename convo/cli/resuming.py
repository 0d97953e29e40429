"""Decides on a state as the flags of `convo resume` ask, and writes it.

Everything is decided before anything is written, and told on stderr once it is. The exit
code is 3 as long as a call waits for somebody else.
"""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from convo.cli.choosing import chosen, rank
from convo.cli.keys import signing_key
from convo.cli.states import PIPE, from_pipe, state_at
from convo.engine.state_file import load, save
from convo.runstate import (
    LABELS,
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


def check_there(place: str, config: Path | None) -> None:
    """raises: NotFound, AmbiguousHandle, Unreadable, BadState  nothing at `place` could be gone on with"""
    if proved(place, config, Signing("", verify=False)) is None:
        from convo.cli.wiring import from_store
        from convo.config import load as settings_of
        from convo.engine.run_keeping import kept_run

        from_store(settings_of(config), lambda store: kept_run(store, place))


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
    for words in (*done.notes, *lost(done.losses)):
        sys.stderr.write(safe(words) + "\n")
    return _told(done.state, done.losses, written)


class Done(NamedTuple):
    """What is written, and what is told of it: what was decided, in words, and what was lost."""

    state: State
    notes: tuple[str, ...]
    losses: tuple[Loss, ...] = ()


def _as_asked(state: State, asked: Asked, label: str | None) -> Done:
    """The decided state under the label asked for; decided on under the newer of the two, which has words for more."""
    if label is None:
        return _decided(state, asked)
    if label in LABELS[LABELS.index(state.label) :]:
        state, losses = relabelled(state, label)
        return _decided(state, asked)._replace(losses=losses)
    state, notes, _ = _decided(state, asked)
    state, losses = relabelled(state, label)
    return Done(state, notes, losses)


def _decided(state: State, asked: Asked) -> Done:
    choices = _choices(state, asked)
    notes = [] if state.pending else ["nothing waits in this state"]
    meant = [(one, choices[one.id]) for one in state.pending if one.id in choices]
    for one, choice in meant:
        state = edited(state, one, in_an_editor(str(one.call.arguments))) if choice.edits else state
    waiting = {one.id: one for one in state.pending}
    for verdict, alike in groupby(meant, lambda one: one[1].verdict):
        state = decided(state, [waiting[one.id] for one, _ in alike], verdict)
    for one, choice in meant:
        word = "approved" if choice.verdict.approve else "rejected"
        edits = ", with other arguments" if choice.edits else ""
        notes.append(f"{word} {one.call.tool} ({one.id}){edits}")
    return Done(state, tuple(notes))


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
