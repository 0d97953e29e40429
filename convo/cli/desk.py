"""What a chat is opened with: the flags, the store, the model, the right to write.

The order matters. Which endpoint a handle lives at stands in its record, so the record is found
before the model is chosen; and nothing is sent or stored before this process may write.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from convo.cli.forking import Forked, forked
from convo.cli.run_flags import NO_AGENTS, RunFlags
from convo.cli.saying import note
from convo.cli.wiring import asking_of, chosen, counts_here, endpoint_for, endpoint_of
from convo.clock import SystemClock
from convo.config import Choice, Layer, Settings, Sources, choose
from convo.config.files import PROFILE
from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.finding import absolute, last_used
from convo.engine.lease import writing
from convo.engine.naming import fit
from convo.engine.opening import fork, open_chat, recorded
from convo.engine.schema import text_format
from convo.engine.turn import Asking
from convo.errors import Busy, NotFound, Usage
from convo.history import Link, Session, Strategy
from convo.ids import random_id
from convo.items import Json
from convo.stores.contract import Store
from convo.stores.leasing import Hold
from convo.stores.rules import name_taken
from convo.strategies import Wanted, wanted
from convo.tokens import price_of
from convo.ui.answer import Fold, Sheet, safe
from convo.ui.medium import drawn_on, fitted, medium_of
from convo.ui.receipt import receipt
from convo.ui.sheet import PLAIN, sheet_at
from convo.ui.thinking import folded, thought

if TYPE_CHECKING:
    from convo.cli.conduct import Cast
    from convo.cli.remembered_agents import AgentReference
    from convo.endpoints.contract import Endpoint
    from convo.engine.conduct import Route
    from convo.transfer.shortening import Shortening

FORGETS = ("none", "memory")
"""Kinds of stores that hold nothing once the command has ended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags of one `convo chat`; `prompt` is None when a person is to be asked."""

    strategies: tuple[Strategy, ...] = ()
    handle: str | None = None
    last: bool = False
    fork: str | None = None
    name: str | None = None
    store: bool = False
    model: str | None = None
    system: str | None = None
    attach: tuple[str, ...] = ()
    schema: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    prompt: str | None = None
    config: Path | None = None
    run: RunFlags = field(default_factory=RunFlags)

    @property
    def continues(self) -> bool:
        """Whether an existing conversation is continued or forked."""
        return bool(self.handle or self.last or self.fork)

    @property
    def agents(self) -> str | None:
        """The value of --agent; None for `none`."""
        return None if self.run.agent == NO_AGENTS else self.run.agent


@dataclass(frozen=True, slots=True)
class Out:
    """What comes out, and in which form."""

    quiet: bool = False
    as_json: bool = False
    as_jsonl: bool = False
    live: bool = True
    plain: bool = False

    def note(self, words: str) -> None:
        """Tell the person something that is not the answer."""
        if not self.quiet:
            note(words)
            sys.stderr.flush()

    def tell(self, words: str) -> None:
        """The same in lines that fit the terminal: for what nobody copies as a whole."""
        self.note(fitted(safe(words), drawn_on(sys.stderr).width))


class Desk:
    """Opens the chat that the flags ask for, and says what became of it."""

    def __init__(self, sources: Sources, store: Store, open_things: AsyncExitStack, asked: Asked, out: Out) -> None:
        self._sources, self._store, self._open_things = sources, store, open_things
        self._asked, self._out = asked, out
        self._settings: Settings | None = None
        self._counts_here = False
        self._shortening: Shortening | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._holds: dict[str, Hold] = {}

    async def open(self) -> Chat:
        """The conversation that the flags ask for, for writing. raises: as its parts do; Busy"""
        asked = self._asked
        begun = await forked(self._store, asked.fork) if asked.fork else Forked()
        want, source = self._wanted(begun), begun.session
        session = source or (None if asked.fork else await recorded(self._store, want))
        if asked.last and session:
            await self._note_skipped_session(session)
        if want.strategy is Strategy.REPLAY and want.handle and not (session or asked.strategies):
            there(want.handle)
        name = await self._name(None if source else session)
        edges, asking = await self._reach(session)
        if source:
            chat = await fork(source, asking, edges, name=name)
        else:
            chat = await open_chat(want, session, asking, edges, name=name)
        try:
            await self._hold(chat)
        except Busy as busy:
            if not session or asked.agents or not await offered(busy, session):
                raise
            chat = await fork(session, asking, edges)
            await self._hold(chat)
        await chat.catch_up()
        chat.reread()
        self._tell_new_file(chat.session)
        return chat

    def sheet(self) -> Sheet | None:
        """What answers are laid out on; None where their words are printed as they are."""
        assert self._settings
        plain = self._out.plain or PLAIN in (self._settings.answers, self._settings.editing)
        return None if plain else sheet_at(sys.stdout, os.environ)

    def folded(self) -> Fold | None:
        """How reasoning is announced to a person; None where there is nobody to read it."""
        if self._out.quiet or not sys.stderr.isatty():
            return None
        medium = medium_of(sys.stderr, os.environ)
        return lambda item: folded(thought(item), medium)

    async def prepare(self, chat: Chat) -> None:
        """Let the history be short enough for another message; that it is compacted is told first."""
        from convo.cli.shortening import prepared, shortening

        assert self._settings
        self._shortening = self._shortening or shortening(self._settings.compact_at, self._settings.windows)
        await prepared(chat, self._shortening, self._out.note)

    def receipt(self, chat: Chat) -> str:
        """The line for the last turn, which has ended."""
        link = ended(chat)
        assert link
        return self.receipt_of(chat, link)

    def receipt_of(self, chat: Chat, link: Link, parts: Sequence[Link] = ()) -> str:
        """The line for `link`, which may be the total of several calls."""
        assert self._settings
        return receipt(link, chat.session, price_of(chat.asking.model, self._settings.prices), parts)

    async def way_back(self, chat: Chat) -> str:
        """The command that goes on with this chat later; "" when nothing is left of it."""
        session, config = chat.session, self._asked.config
        assert self._settings
        kept = self._settings.storage.type not in FORGETS and await self._store.session(session.id)
        handle = session.name if kept else session.handle
        begin = f"{called()} --config {quote(str(config))}" if config else called()
        agents = f" --agent {quote(self._asked.agents)}" if self._asked.agents else ""
        return f"{begin} chat --from {quote(handle)}{agents}" if handle and chat.turn else ""

    @property
    def paused(self) -> Path:
        """The folder of the states of paused runs."""
        return self._sources.places.paused

    @property
    def prompts(self) -> Path:
        """The file that remembers what was typed."""
        return self._sources.places.prompts

    def remembering(self, chat: Chat, cast: "Cast") -> "Cast":
        """`cast` for the runs of `chat`, which remember the agents as long as the store does."""
        assert self._settings
        if self._settings.storage.type in FORGETS:
            return cast
        return cast.of_session(chat.session.id, self._asked.model, self._sources.places.data)

    async def agents_before(self) -> "AgentReference | None":
        """The agents that the session to be continued, or forked, had before. raises: as `open`; Usage, Unreadable"""
        asked = self._asked
        begun = await forked(self._store, asked.fork) if asked.fork else Forked()
        session = begun.session or (None if asked.fork else await recorded(self._store, self._wanted(begun)))
        if session is None or not await self._store.agent_runs(session=session.id, limit=1):
            return None
        from convo.cli.remembered_agents import agents_of_session  # a chat without agents imports nothing of them

        found = await agents_of_session(self._store, session.id, self._sources.places.data)
        if found is None:
            self._out.note(
                "the agents of this session are not stored: continuing without agents; add --agent to use them"
            )
        return found

    # -- which conversation -----------------------------------------------------------------------

    def _wanted(self, begun: Forked) -> Wanted:
        asked = self._asked
        if asked.fork and (asked.handle or asked.last or asked.strategies):
            raise Usage("--fork names the session and keeps its owner", hint="convo chat --fork HANDLE")
        return wanted(asked.strategies, begun.handle or asked.handle, last=asked.last)

    async def _name(self, session: Session | None) -> str:
        """The name for a new session, "" for one of its own making; `session` is gone on with.

        raises:  Usage     it has a name, or this cannot be one
                 Conflict  another session has it
        """
        wish = self._asked.name
        if wish is None:
            return ""
        if session:
            raise Usage(
                f"-n names a new session, and this one is {session.name!r}",
                hint=f"convo sessions rename {quote(session.name)} {quote(wish)}",
            )
        if await self._store.session(fit(wish)):
            raise name_taken(wish)
        return wish

    async def _note_skipped_session(self, session: Session) -> None:
        """Note that -c continues `session` although another one was used later."""
        newest = await last_used(self._store)
        if newest.id != session.id:
            self._out.note(f"{newest.name!r} has no answer yet, so this continues {session.name!r}")

    def _tell_new_file(self, session: Session) -> None:
        if session.strategy is Strategy.REPLAY and session.handle and not os.path.lexists(session.handle):
            near = os.path.relpath(session.handle)
            self._out.note(f"the conversation goes to {session.handle if near.startswith('..') else near}")

    # -- who answers ------------------------------------------------------------------------------

    async def _reach(self, session: Session | None, *, model: str | None = None) -> tuple[Edges, Asking]:
        self._settings, choice = chosen(self._sources, session, model=model)
        self._counts_here = counts_here(choice)
        self._announce(choice)
        endpoint = await self._open_things.enter_async_context(endpoint_for(choice, self._settings, self._store))
        self._endpoints[choice.provider.name] = endpoint
        return Edges(self._store, endpoint, SystemClock(), random_id), self._asking(choice, session)

    def route(self, model: str) -> "Route":
        """Who answers for an agent's own model; asked again, the same. raises: BadSettings, Usage"""
        from convo.engine.conduct import Route

        assert self._settings
        choice = choose(self._settings, model, where="an agent's model")
        name = choice.provider.name
        if name not in self._endpoints:
            endpoint = endpoint_of(choice, self._settings, self._store)
            self._open_things.push_async_callback(endpoint.aclose)
            self._endpoints[name] = endpoint
        return Route(self._asking(choice, None), self._endpoints[name])

    def _asking(self, choice: Choice, session: Session | None) -> Asking:
        asked = self._asked
        form = {"text": text_format(asked.schema)} if asked.schema else {}
        return asking_of(
            choice,
            instructions=session.instructions if session and asked.system is None else asked.system,
            parameters={**asked.parameters, **form},
            store=asked.store,
        )

    def _announce(self, choice: Choice) -> None:
        if choice.origin.layer is Layer.DEFAULT and choice.provider.api == "local":
            self._out.note("no key was found, so the built-in model answers: a small demo that forgets and errs")

    async def _hold(self, chat: Chat) -> None:
        if chat.session.id not in self._holds:
            hold = self._holds[chat.session.id] = await writing(self._store, chat.session)
            self._open_things.push_async_callback(hold.release)


async def offered(busy: Busy, session: Session) -> bool:
    """Whether the person at the terminal takes a fork of a session that somebody else holds."""
    if session.strategy is Strategy.CONVERSATION or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from convo.ui.prompt import typed

    with suppress(EOFError):
        answer = await typed(safe(f"{busy.message}; fork it and go on from where it stands? [y/N] "))
        return answer.strip().lower() in ("y", "yes")
    return False


def there(file: str) -> None:
    """Make sure of a file that only its name says is one. raises: NotFound"""
    if not os.path.lexists(absolute(file)):
        raise NotFound("file", file, hint=f"convo chat --replay --from {quote(file)}, to begin one there")


def called() -> str:
    """How this command was called, so that what is said of coming back can be pasted."""
    command = "uv run convo" if "UV_RUN_RECURSION_DEPTH" in os.environ else "convo"
    profile = PROFILE.get()
    return f"{command} --profile {quote(profile)}" if profile else command


def ended(chat: Chat) -> Link | None:
    """How the last turn ended; None when nothing was asked."""
    return chat.turn.link if chat.turn else None
