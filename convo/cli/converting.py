"""What `convo convert` does: read the source, decide what goes over, say so, and make it.

Where the new owner is follows from the model: the one that is named, else the source's own. Only a
conversation needs its endpoint at once; every other owner is made without asking anybody.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from convo.cli.known import Search, Where
from convo.cli.redacting import as_fields, lines, redacted
from convo.cli.saying import say, say_json
from convo.cli.wiring import endpoint_for, record_of, store_of
from convo.clock import SystemClock
from convo.config import Choice, Flags, Settings, Sources, choose, read, resolve
from convo.config.binding import whereabouts
from convo.endpoints.contract import Endpoint
from convo.engine.chat import Chat
from convo.engine.naming import fit
from convo.history import HERE, OWNERS, Scope, Session, Strategy
from convo.ids import random_id
from convo.inspection import Known
from convo.items import Json
from convo.stores.contract import Store
from convo.stores.rules import name_taken
from convo.strategies import kind_of
from convo.strategies.carrying import Carried, Target, carry
from convo.transfer.beside import Beside
from convo.transfer.handing import Wish, hand_over, worth_it
from convo.transfer.taking import Source, taken
from convo.ui.converted import facts, report, result
from convo.ui.medium import drawn_on, medium_of


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one `convo convert`."""

    handle: str
    to: Strategy
    name: str | None = None
    model: str | None = None
    provider: str | None = None
    redact: bool = False
    patterns: tuple[str, ...] = ()
    dry_run: bool = False
    as_json: bool = False
    config: Path | None = None


async def convert_one(asked: Asked) -> None:
    """Carry out one conversion and print it. raises: as its parts do; then nothing was made"""
    sources = read(asked.config, Flags(model=asked.model))
    settings = resolve(sources)
    async with store_of(settings) as store:
        known = await Search(settings, store, Where(asked.config, asked.provider)).one(asked.handle)
        source = await from_owner(known, settings, store)
        hidden = redacted(source.document(), asked.redact, asked.patterns, settings)
        source = source.without_secrets(hidden.document) if hidden else source
        wish = await wished(asked.name, asked.to, store)
        choice = answering(sources, source, asked.model)
        target = Target(asked.to, scope_of(choice), str(choice.name))
        worth_it(source, target)
        carried = carry(source.said, target)
        if not asked.as_json:
            notes = (*source.notes, *(lines(hidden) if hidden else ()))
            say(report(carried.losses, notes, medium_of(sys.stdout, os.environ)))
        made = None if asked.dry_run else await _made(source, carried, target, wish, choice, settings, store)
    if asked.as_json:
        say_json(as_object(source, carried, target, made) | as_fields(hidden))
    elif made:
        waiting = len(carried.items) if made.strategy is Strategy.CHAIN else len(carried.items) - carried.confirmed
        rows = facts(made.name, made.strategy, made.handle, len(carried.items), waiting)
        say(result(rows, medium_of(sys.stdout, os.environ)))


async def from_owner(known: Known, settings: Settings, store: Store) -> Source:
    """What `known` holds; its owner is asked where it remembers and a record says how to reach it."""
    async with owner_of(known, settings, store) as endpoint:
        return await taken(known, store, endpoint)


@asynccontextmanager
async def owner_of(known: Known, settings: Settings, store: Store) -> AsyncIterator[Endpoint | None]:
    """The endpoint that holds what a record mirrors; None where the record, or what was read, is all there is."""
    if known.session is None or not OWNERS[known.strategy].remembers or not known.session.handle:
        yield None
        return
    record = record_of(known.session)
    choice = choose(settings, known.session.model, where=f"the record of {known.handle}", record=record)
    async with endpoint_for(choice, settings, store) as endpoint:
        yield endpoint


def answering(sources: Sources, source: Source, model: str | None) -> Choice:
    """Who answers at the new owner: who was named, else who answered until now, where it was."""
    named = source.model and "/" in source.model
    if model is not None or not named:
        return choose(resolve(sources))
    choice = choose(resolve(sources), source.model, where=f"the record of {source.handle}")
    scope = source.scope
    if scope is None or not source.held.remembers:
        return choice
    from convo.config.binding import Record, bind

    record = Record(source.handle, source.model or "", scope.url, scope.organisation, scope.project)
    return bind(resolve(sources), choice, record)


def scope_of(choice: Choice) -> Scope:
    """Where the handles of this model's endpoint mean something."""
    where = whereabouts(choice.provider)
    return HERE if where.url == HERE.url else Scope(where.url.rstrip("/"), where.organisation, where.project)


async def wished(name: str | None, to: Strategy, store: Store) -> Wish:
    """What `--as` names. raises: Usage  it is no name;  Conflict  another session has it"""
    if name is None:
        return Wish()
    if to is Strategy.REPLAY and kind_of(name) is Strategy.REPLAY:
        return Wish(file=name)
    if await store.session(fit(name)):
        raise name_taken(name)
    return Wish(name=name)


async def _made(
    source: Source, carried: Carried, target: Target, wish: Wish, choice: Choice, settings: Settings, store: Store
) -> Session:
    beside = Beside(store, SystemClock(), random_id)
    if target.strategy is not Strategy.CONVERSATION:
        return await hand_over(source, carried, target, wish, beside)
    async with endpoint_for(choice, settings, store) as endpoint:
        return await hand_over(source, carried, target, wish, beside, endpoint)


def as_object(source: Source, carried: Carried, target: Target, made: Session | None) -> dict[str, Json]:
    """The object of `convo convert --json`; `session` is null where nothing was made."""
    return {
        "source": {"handle": source.handle, "strategy": str(source.strategy), "items": len(source.said)},
        "strategy": str(target.strategy),
        "endpoint": str(target.scope),
        "model": target.model,
        "session": made.name if made else None,
        "handle": made.handle if made else None,
        "items": len(carried.items),
        "unacknowledged": len(carried.items) - (carried.confirmed if target.strategy is not Strategy.CHAIN else 0),
        "losses": [
            {"code": loss.code, "effect": str(loss.effect), "why": loss.why, "items": list(loss.places)}
            for loss in carried.losses
        ],
        "notes": list(source.notes),
    }


def owned(chat: Chat, carried: Carried) -> str:
    """What became of a conversation that is open, on a screen."""
    medium, session, held = drawn_on(sys.stderr), chat.session, chat.held
    rows = facts(session.name, session.strategy, session.handle, len(held.path), len(held.unacknowledged))
    return f"{report(carried.losses, (), medium)}\n{result(rows, medium)}"
