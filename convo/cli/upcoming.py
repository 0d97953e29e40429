"""From a handle to its next request: who owns it, who would answer, what would travel.

Everything is found as `convo inspect` finds it and asked as `convo chat --from` would ask. Whoever
counts on this machine is asked to; a server is asked only on request.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from convo.cli.changing import check_no_run
from convo.cli.known import Search, Where
from convo.cli.run_flags import NO_AGENTS, RunFlags
from convo.cli.saying import note, say, say_json
from convo.cli.wiring import asking_of, chosen, counts_here, endpoint_for, store_of
from convo.config import Choice, Flags, Record, Settings, Sources, choose, read, resolve, token_of
from convo.endpoints.contract import Endpoint
from convo.engine.attaching import attached
from convo.engine.coming import Counting, coming, counted_here, repeated, spoken_with, stands, tried
from convo.engine.finding import by_handle
from convo.engine.looking import of_session
from convo.engine.turn import Asking
from convo.history import OWNERS
from convo.inspection import Known
from convo.inspection.coming import Coming, next_as_json
from convo.items import user
from convo.stores.contract import Store
from convo.strategies import kind_of
from convo.ui.answer import safe
from convo.ui.coming import curl, screen
from convo.ui.medium import medium_of

if TYPE_CHECKING:
    from convo.cli.conduct import Cast

SERVED = "this goes to convo's own endpoint: convo serve answers there"
OWN_KEY = "CONVO_KEY"
"""The variable that a command names where our own server wants a key."""


@dataclass(frozen=True, slots=True)
class Wished:
    """The arguments of one `convo next`."""

    handle: str
    prompt: str = ""
    model: str | None = None
    system: str | None = None
    attach: tuple[str, ...] = ()
    store: bool = False
    provider: str | None = None
    count: str = "auto"
    config: Path | None = None
    run: RunFlags = field(default_factory=RunFlags)


async def upcoming(wished: Wished) -> tuple[Coming, Settings]:
    """The next request; nothing is stored.

    raises:  NotFound, AmbiguousHandle, Unreadable, WrongOwner, ItemDeleted, BadSettings
             StateFault  a run of agents is open, whose calls have no output yet
             what an agent's own code raises, and what the endpoint answers, when it is asked
    """
    along = [attached(place) for place in wished.attach]
    said = [user(wished.prompt, *along)] if wished.prompt or along else []
    cast = cast_in(wished.run)
    model = cast.model if cast and wished.model is None else wished.model
    sources = read(wished.config, Flags(model=model))
    async with store_of(resolve(sources)) as store, AsyncExitStack() as open_things:
        known = await gone_on_with(store, wished, resolve(sources))
        if known.session:
            await check_no_run(store, known.session)
        if wished.run.agent is None:
            wished = await _as_before(store, known, wished, sources.places.data)
            cast = cast_in(wished.run)
            model = cast.model if cast and wished.model is None else wished.model
            sources = read(wished.config, Flags(model=model))
        settings, choice = answers(sources, known, model)
        endpoint = await open_things.enter_async_context(endpoint_for(choice, settings, store))
        asked, sent, count = asking(choice, known, wished), None, COUNTS[wished.count](endpoint, choice)
        if cast:
            from convo.cli.upcoming_run import ByAgents

            by = ByAgents(cast, settings, store, open_things)
            seen = await by.foreseen(known, said, asked, endpoint, alike=bool(wished.model))
            count = count if seen.endpoint is endpoint else counted_here
            asked, endpoint, sent = seen.asking, seen.endpoint, seen.sent
        own, key = settings.windows, key_env(choice)
        found = await coming(known.handle, stands(known), said, asked, endpoint, count, key_env=key, own=own, sent=sent)
    return found, settings


async def _as_before(store: Store, known: Known, wished: Wished, data: Path) -> Wished:
    """`wished` with the agents, and -m, that the session had before. raises: Usage  flags that do not fit them"""
    if known.session and await store.agent_runs(session=known.session.id, limit=1):
        from convo.cli.remembered_agents import agents_of_session

        found = await agents_of_session(store, known.session.id, data)
        if found is not None:
            sys.stderr.write(f"agents as before: {safe(found.file)}\n")
            wished = replace(wished, model=wished.model or found.model, run=replace(wished.run, agent=found.file))
    wished.run.check(system=wished.system)
    return wished


def cast_in(flags: RunFlags) -> "Cast | None":
    """The agents that would answer, where some are named. raises: as `cast_of`"""
    if flags.agent in (None, NO_AGENTS):
        return None
    from convo.cli.conduct import cast_of

    return cast_of(flags)


async def gone_on_with(store: Store, wished: Wished, settings: Settings) -> Known:
    """What the handle names; of an endpoint's handle the record that stands there, where there is one."""
    known = await Search(settings, store, Where(wished.config, wished.provider)).one(wished.handle)
    kind = kind_of(known.handle)
    record = await by_handle(store, kind, known.handle) if OWNERS[kind].remembers and not known.session else None
    return await of_session(store, record) if record else known


def answers(sources: Sources, known: Known, model: str | None) -> tuple[Settings, Choice]:
    """Who would answer next: as the record says, or else whoever answered last."""
    if known.session:
        return chosen(sources, known.session)
    settings = resolve(sources)
    if known.scope is None or known.model is None:
        return settings, choose(settings, model)
    scope = known.scope
    record = Record(known.handle, known.model, scope.url, scope.organisation, scope.project)
    remembers = OWNERS[stands(known).strategy].remembers
    choice = choose(settings, model or known.model, where="-m", record=record if remembers else None)
    return settings._replace(providers={**settings.providers, choice.provider.name: choice.provider}), choice


def asking(choice: Choice, known: Known, wished: Wished) -> Asking:
    """How the turn would ask."""
    instructions = spoken_with(known) if wished.system is None else wished.system
    return asking_of(choice, instructions=instructions, parameters=repeated(known), store=wished.store)


def key_env(choice: Choice) -> str | None:
    """The variable that holds what the request is signed with."""
    provider = choice.provider
    return provider.token_env if token_of(provider, os.environ) else provider.key_env


def _auto(endpoint: Endpoint, choice: Choice) -> Counting:
    """An endpoint is asked where nothing leaves this machine for it."""
    return tried(endpoint) if counts_here(choice) else counted_here


def _endpoint(endpoint: Endpoint, choice: Choice) -> Counting:
    return endpoint.count


def _offline(endpoint: Endpoint, choice: Choice) -> Counting:
    return counted_here


COUNTS: Mapping[str, Callable[[Endpoint, Choice], Counting]] = {
    "auto": _auto,
    "endpoint": _endpoint,
    "offline": _offline,
}


def printed(found: Coming, settings: Settings, *, form: str, base_url: str | None = None) -> None:
    """Print it in one form: "", "--json" or "--curl"."""
    if form == "--json":
        say_json(next_as_json(found))
    elif form == "--curl":
        say(_command(found, settings, base_url))
    else:
        say(screen(found, medium_of(sys.stdout, os.environ)))


def _command(found: Coming, settings: Settings, base_url: str | None) -> str:
    """The command, and on stderr who answers where the request would not leave this process."""
    if found.url:
        return curl(found, base_url)
    note(SERVED)
    serve = settings.serve
    host = f"[{serve.host}]" if ":" in serve.host else serve.host
    return curl(served(found, needs_key=serve.keys_file is not None), base_url or f"http://{host}:{serve.port}/v1")


def served(found: Coming, *, needs_key: bool) -> Coming:
    """The same request as our own server takes it."""
    return replace(found, headers={"Authorization": "Bearer {key}"}, key_env=OWN_KEY) if needs_key else found
