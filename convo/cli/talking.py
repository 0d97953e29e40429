"""What `convo chat` does once its flags are read.

Find the session, choose the model with its record in mind, open the endpoint, take the right to
write, and then ask once or hand the terminal to the loop. The order matters: which endpoint a
handle lives at stands in the record, and nothing is sent or stored before somebody may write.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from convo.cli.wiring import chosen, endpoint_for, store_of
from convo.clock import SystemClock
from convo.config import Choice, Flags, Layer, Settings, Sources, read, resolve
from convo.engine.attaching import attached
from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.finding import the_session
from convo.engine.lease import writing
from convo.engine.opening import fork, open_chat, recorded
from convo.engine.schema import text_format
from convo.engine.turn import Asking
from convo.errors import Busy, Interrupted, Usage
from convo.history import Link, Session, Strategy
from convo.ids import random_id
from convo.items import Event, Item, Json, text, user
from convo.stores.contract import Store
from convo.strategies import Wanted, kind_of, wanted
from convo.tokens import seals_reasoning
from convo.ui.answer import Printer, safe
from convo.ui.answering import watched
from convo.ui.conversing import Conversing
from convo.ui.receipt import receipt
from convo.ui.status import next_request, status

EXITS = {"completed": 0, "cancelled": 130}
"""Exit codes by how the turn ended; every other end is a failure."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags of one `convo chat`; `prompt` is None when a person is to be asked."""

    strategies: tuple[Strategy, ...] = ()
    handle: str | None = None
    last: bool = False
    fork: str | None = None
    name: str = ""
    store: bool = False
    model: str | None = None
    system: str | None = None
    attach: tuple[str, ...] = ()
    schema: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    prompt: str | None = None
    config: Path | None = None


@dataclass(frozen=True, slots=True)
class Out:
    """What comes out, and in which form."""

    quiet: bool = False
    as_json: bool = False
    as_jsonl: bool = False
    live: bool = True

    def note(self, words: str) -> None:
        """Tell the person something that is not the answer."""
        if not self.quiet:
            sys.stderr.write(safe(words) + "\n")
            sys.stderr.flush()


async def talk(asked: Asked, out: Out) -> int:
    """Carry out one `convo chat`; returns the exit code."""
    said = first_message(asked)
    sources = read(asked.config, Flags(model=asked.model))
    async with store_of(resolve(sources)) as store, AsyncExitStack() as open_things:
        desk = Desk(sources, store, open_things, asked, out)
        chat = await desk.open()
        if said is None:
            return await converse(chat, desk, out)
        return await ask_once(chat, said, desk, out)


def first_message(asked: Asked) -> Item | None:
    """The message of a one-shot chat; None when a person is to be asked.

    raises:  Usage  there is nothing to send;  Unreadable  an attachment cannot be read
    """
    if asked.prompt is None and not asked.attach:
        return None
    if not (asked.prompt or "").strip() and not asked.attach:
        raise Usage("there is nothing to send: the message is empty", hint='convo chat "..."')
    return user(asked.prompt or "", *(attached(place) for place in asked.attach))


class Desk:
    """Everything that a chat is opened with, and what its loop may ask for."""

    def __init__(self, sources: Sources, store: Store, open_things: AsyncExitStack, asked: Asked, out: Out) -> None:
        self._sources, self._store, self._open_things = sources, store, open_things
        self._asked, self._out = asked, out
        self._settings: Settings | None = None

    async def open(self) -> Chat:
        """Open the conversation that the flags ask for, for writing. raises: as its parts do; Busy"""
        asked, want = self._asked, self._wanted()
        source = await self._to_fork()
        session = source or (None if asked.fork else await recorded(self._store, want))
        edges, asking = await self._reach(session)
        if source:
            chat = await fork(source, asking, edges)
        else:
            chat = await open_chat(want, session, asking, edges, name=asked.name)
        try:
            await self._hold(chat)
        except Busy as busy:
            if not session or not offered(busy):
                raise
            chat = await fork(session, asking, edges)
            await self._hold(chat)
        return chat

    async def switch(self, chat: Chat, model: str) -> None:
        """Let another model answer from the next turn on. raises: WrongOwner, BadSettings"""
        chat.edges, chat.asking = await self._reach(chat.session, model=model)

    async def inspect(self, chat: Chat, handle: str) -> str:
        from convo.cli.known import shown

        return await shown(self._store, handle or chat.session.id)

    def status(self, chat: Chat) -> str:
        return status(chat.session, chat.reread(), chat.asking.model)

    def next(self, chat: Chat, words: str) -> str:
        return next_request(chat.reread(), chat.preview([user(words)] if words else []))

    def receipt(self, chat: Chat) -> str:
        assert self._settings
        return receipt(ended(chat), chat.session, self._settings.prices.get(chat.asking.model))

    @property
    def prompts(self) -> Path:
        """The file that remembers what was typed."""
        return self._sources.places.prompts

    def _wanted(self) -> Wanted:
        asked = self._asked
        if asked.fork and (asked.handle or asked.last or asked.strategies):
            raise Usage("--fork names the session and keeps its owner", hint="convo chat --fork HANDLE")
        if asked.fork and kind_of(asked.fork) is not Strategy.SESSION:
            return wanted([], asked.fork)
        return wanted(asked.strategies, asked.handle, last=asked.last)

    async def _to_fork(self) -> Session | None:
        """The session that --fork names; a response is gone on from by its id."""
        asked = self._asked.fork
        return await the_session(self._store, asked) if asked and kind_of(asked) is Strategy.SESSION else None

    async def _reach(self, session: Session | None, *, model: str | None = None) -> tuple[Edges, Asking]:
        self._settings, choice = chosen(self._sources, session, model=model)
        self._announce(choice)
        endpoint = await self._open_things.enter_async_context(endpoint_for(choice, self._settings, self._store))
        return Edges(self._store, endpoint, SystemClock(), random_id), self._asking(choice, session)

    def _asking(self, choice: Choice, session: Session | None) -> Asking:
        asked, remote = self._asked, choice.provider.endpoint == "remote"
        form = {"text": text_format(asked.schema)} if asked.schema else {}
        return Asking(
            model=str(choice.name),
            wire_model=choice.name.model if remote else str(choice.name),
            instructions=session.instructions if session and asked.system is None else asked.system,
            parameters={**asked.parameters, **form},
            store=asked.store,
            seal=remote and seals_reasoning(choice.name.model),
        )

    def _announce(self, choice: Choice) -> None:
        if choice.origin.layer is Layer.DEFAULT and choice.provider.api == "local":
            self._out.note("no key was found, so the built-in model answers: a small demo that forgets and errs")

    async def _hold(self, chat: Chat) -> None:
        hold = await writing(self._store, chat.session)
        self._open_things.push_async_callback(hold.release)


def offered(busy: Busy) -> bool:
    """Whether the person at the terminal takes a fork of a session that somebody else holds."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{busy.message}; fork it and go on from where it stands? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def converse(chat: Chat, desk: Desk, out: Out) -> int:
    """Hand the terminal to the loop, and say at the end how to come back."""
    from convo.ui.commands import COMMANDS
    from convo.ui.prompt import terminal_reader

    if out.as_json or out.as_jsonl:
        raise Usage("--json and --jsonl are about one turn", hint='convo chat --json "..."')
    reader = terminal_reader(desk.prompts, [f"/{name}" for name in COMMANDS])
    talking = Conversing(chat, reader, desk, out=sys.stdout, err=sys.stderr, live=out.live, quiet=out.quiet)
    code = await talking.run()
    if chat.session.name:
        out.note(f"come back: convo chat --from {chat.session.name}")
    return code


async def ask_once(chat: Chat, said: Item, desk: Desk, out: Out) -> int:
    """One turn; returns the exit code that its end stands for. raises: as the turn does"""
    printer = Printer(sys.stdout, sys.stderr, live=out.live)
    take = printed_lines if out.as_jsonl else ignored if out.as_json else printer.take
    try:
        await watched(chat.say([said]), take)
    except Interrupted:
        if not out.as_json:
            out.note("stopped; what came so far is kept")
    finally:
        printer.end()
        for note in chat.turn.notes if chat.turn else ():
            out.note(note)
    if out.as_json:
        sys.stdout.write(json.dumps(outcome(chat)) + "\n")
    else:
        out.note(desk.receipt(chat))
    return EXITS.get(ended(chat).status, 1)


def ended(chat: Chat) -> Link:
    """How the last turn ended."""
    assert chat.turn
    assert chat.turn.link
    return chat.turn.link


def printed_lines(event: Event) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def ignored(event: Event) -> None:
    """Nothing is printed before the end."""


def outcome(chat: Chat) -> dict[str, Json]:
    """The object of `convo chat --json`. source: DESIGN.md, "Settings and shapes"."""
    session, link = chat.session, ended(chat)
    response = chat.turn.response if chat.turn else None
    output = list((response or {}).get("output") or ())
    return {
        "response_id": None if link.id.startswith("try_") else link.id,
        "session": session.name,
        "strategy": str(session.strategy),
        "conversation_id": session.handle if session.strategy is Strategy.CONVERSATION else None,
        "model": chat.asking.model,
        "output_text": "".join(text(item) for item in output if item.get("type") == "message"),
        "output": output,
        "usage": link.usage,
        "status": link.status,
        "pending": [],
        "state_file": session.handle if session.strategy is Strategy.REPLAY else None,
    }
