"""What `convo approvals` does: reads what paused runs wait for, and keeps decisions on it.

The store is all that is needed, and no agents: a decision changes the kept document, under the
same right to write as a chat on that session, and whoever goes on with the run performs it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple, TypeAlias

from convo.cli.choosing import ALL, kept_text, outcome_text
from convo.cli.wiring import from_store, store_of
from convo.clock import SystemClock
from convo.config import load
from convo.engine.lease import writing
from convo.engine.left_runs import Left, left_runs
from convo.engine.run_keeping import ORIGIN
from convo.errors import AmbiguousHandle, Busy, NotFound
from convo.items import Json
from convo.run import Decided
from convo.run.inbox import Waiting, decidable, decided, waiting
from convo.stores.contract import AgentRun, Change, Store
from convo.ui.answer import safe
from convo.ui.asking import Paused, listed, one_call
from convo.ui.labelled import counted
from convo.ui.medium import medium_of

Config: TypeAlias = Path | None

MANY = 10_000
"""Runs that are looked at."""


class Verdict(NamedTuple):
    """What is decided; `edits` lets a person change the arguments first."""

    approve: bool
    always: bool = False
    edits: bool = False


class Chosen(NamedTuple):
    """A call that a word names, in its run."""

    run: AgentRun
    call: Waiting
    why: str | None = None


def list_waiting(config: Config, *, as_json: bool) -> None:
    """Print what waits, changed last first, and which runs somebody has to go on with before it is known."""

    async def read(store: Store) -> tuple[list[tuple[AgentRun, Paused]], list[Left]]:
        return await _inbox(store, None), await left_runs(store)

    found, left = from_store(load(config), read)
    if as_json:
        waits = [record for run, paused in found for record in _records(run, paused)]
        say(json.dumps(waits + [record for one in left for record in _left_records(one)]))
    elif found:
        say(listed([paused for _, paused in found], medium_of(sys.stdout, os.environ)))
    elif not left:
        note("no run waits for anybody")
    if left:
        note(_in_the_middle(left))


def show_waiting(config: Config, words: Sequence[str], of: str | None, *, as_json: bool) -> None:
    """Print calls in full. raises: NotFound, AmbiguousHandle"""
    found = from_store(load(config), lambda store: _inbox(store, of))
    chosen = _chosen(words, found, approve=True)
    paused = {run.id: one for run, one in found}
    medium = medium_of(sys.stdout, os.environ)
    if as_json:
        say(json.dumps([_record(one.run, paused[one.run.id], one.call) for one in chosen]))
        return
    lines = (one_call(one.call, medium, ("session", paused[one.run.id].session), ("run", one.run.id)) for one in chosen)
    say("\n\n".join(lines))


async def decide(config: Config, words: Sequence[str], of: str | None, verdict: Verdict, *, as_json: bool) -> None:
    """Keep one verdict on calls, all or none of each run.

    words:   as they were typed: CALL, or CALL=WHY with a rejection
    raises:  NotFound, AmbiguousHandle
             Busy  a run's session is open in another process, which may decide itself
    """
    async with store_of(load(config)) as store:
        found = await _inbox(store, of, decided_too=True)
        chosen = _chosen(words, found, approve=verdict.approve)
        for run in {one.run.id: one.run for one in chosen}.values():
            await _keep(store, run, [one for one in chosen if one.run.id == run.id], verdict)
        left = [pair for pair in await _inbox(store, of) if pair[0].id in {one.run.id for one in chosen}]
    if as_json:
        say(json.dumps([record for run, paused in left for record in _records(run, paused)]))
    else:
        _tell(chosen, left, verdict)
    for note_ in _kept(words, found, chosen, verdict):
        note(note_)


async def _keep(store: Store, run: AgentRun, chosen: Sequence[Chosen], verdict: Verdict) -> None:
    session = await store.session(run.session)
    if session is None:
        raise NotFound("session", run.session)
    try:
        hold = await writing(store, session)
    except Busy as busy:
        raise Busy(busy.name, busy.holder, hint="decide there, or leave that chat first") from busy
    try:
        now = await store.agent_run(run.id) or run
        events = [await _event(one, verdict) for one in chosen]
        document = decided(now.document, events)
        changed = replace(now, revision=now.revision + 1, document=document, changed_at=SystemClock().now())
        await store.commit(Change(agent_run=changed))
    finally:
        await hold.release()


def _kept(
    words: Sequence[str], found: Sequence[tuple[AgentRun, Paused]], chosen: Sequence[Chosen], verdict: Verdict
) -> Iterator[str]:
    """Notes on the decisions that differ from what a name or `all` asks, and that stay as they are."""
    names = {word if verdict.approve else word.partition("=")[0] for word in words}
    meant = {id(one.call) for one in chosen}
    for _, paused in found:
        for call in paused.calls:
            differs = call.verdict is not None and call.verdict != verdict.approve and id(call) not in meant
            if differs and names & {ALL, call.tool}:
                yield kept_text(call.tool, call.call_id, bool(call.verdict))


async def _event(one: Chosen, verdict: Verdict) -> Decided:
    arguments = None
    if verdict.edits:
        from convo.ui.rewriting import in_an_editor

        arguments = await asyncio.to_thread(in_an_editor, one.call.arguments)  # the lease is renewed meanwhile
    return Decided(one.call.call_id, verdict.approve, one.why, verdict.always, arguments)


# -- which calls ------------------------------------------------------------------------------------


async def _inbox(store: Store, of: str | None, *, decided_too: bool = False) -> list[tuple[AgentRun, Paused]]:
    """The paused runs, or the one that `of` names: a run's id, or its session's name or id.

    decided_too:  with the calls that are decided and not performed yet
    raises:       NotFound
    """
    calls = decidable if decided_too else waiting
    found = []
    for run in await store.agent_runs(status="paused", limit=MANY):
        session = await store.session(run.session)
        name = session.name if session else run.session
        if of in (None, run.id, run.session, name):
            found.append((run, Paused(run.id, name, _since(run), calls(run.document))))
    if of is not None and not found:
        raise NotFound("paused run", of, hint="convo approvals")
    return found


def _since(run: AgentRun) -> float:
    """Seconds since it was changed."""
    return max(0.0, SystemClock().now() - run.changed_at)


def _chosen(words: Sequence[str], found: Sequence[tuple[AgentRun, Paused]], *, approve: bool) -> list[Chosen]:
    """The calls that the words name, each once. raises: NotFound, AmbiguousHandle"""
    chosen: dict[int, Chosen] = {}
    for word in words:
        for one in _named(word, found, approve=approve):
            chosen.setdefault(id(one.call), one)  # calls of two runs inside one may have the same id
    return list(chosen.values())


def _named(word: str, found: Sequence[tuple[AgentRun, Paused]], *, approve: bool) -> list[Chosen]:
    """An id wins over a tool's name, and a name means undecided calls; one id in two runs could mean either."""
    there = [(run, call) for run, paused in found for call in paused.calls]
    open_ = [pair for pair in there if pair[1].verdict is None]
    name, _, why = (word, "", "") if approve or any(word == call.call_id for _, call in there) else word.partition("=")
    by_id = [pair for pair in there if pair[1].call_id == name]
    if len({run.id for run, _ in by_id}) > 1:
        raise AmbiguousHandle(name, [(f"--run {run.id}", call.tool) for run, call in by_id])
    fits = by_id or (open_ if name == ALL else [pair for pair in open_ if pair[1].tool == name])
    if not fits and not (there if name == ALL else [pair for pair in there if pair[1].tool == name]):
        waits = ", ".join(call.call_id for _, call in open_)
        raise NotFound("pending call", name, hint=f"one of {waits}" if waits else "convo approvals")
    return [Chosen(run, call, why or None) for run, call in fits]


# -- what comes out ---------------------------------------------------------------------------------


def _records(run: AgentRun, paused: Paused) -> list[dict[str, Json]]:
    return [_record(run, paused, call) for call in paused.calls]


def _left_records(left: Left) -> list[dict[str, Json]]:
    """The calls of a run that nobody performs any more, as they will wait once it is gone on with."""
    paused = Paused(left.run.id, left.session.name, _since(left.run), left.calls)
    return [{**record, "left": True} for record in _records(left.run, paused)]


def _record(run: AgentRun, paused: Paused, call: Waiting) -> dict[str, Json]:
    """One waiting call for a program; `waits_s` are seconds."""
    return {
        "run": run.id,
        "session": paused.session,
        "session_id": run.session,
        "call_id": call.call_id,
        "tool_name": call.tool,
        "arguments": call.arguments,
        "agent": call.agent,
        "unknown": call.unknown,
        "since": run.changed_at,
        "waits_s": round(paused.since, 1),
        "left": False,
    }


def _tell(chosen: Sequence[Chosen], left: Sequence[tuple[AgentRun, Paused]], verdict: Verdict) -> None:
    for one in chosen:
        call = one.call
        note(outcome_text(call.tool, call.call_id, approve=verdict.approve, was=call.verdict, always=verdict.always))
    for run, paused in left:
        waits = ", ".join(call.call_id for call in paused.calls)
        agents = "" if ORIGIN in run.document else " --agent FILE.py:NAME"
        going = f"convo resume {quote(paused.session or run.id)}{agents} performs what was decided"
        note(f"{paused.session} still waits for {waits}" if waits else going)


def _in_the_middle(left: Sequence[Left]) -> str:
    """Which runs were left in the middle, and what goes on with the first of them."""
    names = [one.session.name or one.run.id for one in left]
    runs = f"{counted(len(left), 'run')} {'was' if len(left) == 1 else 'were'} left in the middle"
    these = f" ({', '.join(names)})" if len(names) > 1 else ""
    return f"{runs}{these}: convo resume {quote(names[0])} --agent FILE.py:NAME"


def say(words: str) -> None:
    sys.stdout.write(words + "\n")


def note(words: str) -> None:
    sys.stderr.write(safe(words) + "\n")
