"""What the loop of an interactive chat asks of the command that runs it.

The desk opens a conversation; here a person who is in it looks at it, changes who answers or who owns
it, and goes to another one. What is left is given free, so that another terminal may go on with it.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from convo.cli.changing import check_no_run
from convo.cli.desk import Desk, called, there
from convo.cli.standing import Sums, check_takes, recent
from convo.config import Price
from convo.engine.chat import Chat
from convo.engine.heads import standing_at
from convo.engine.opening import fork, open_chat, recorded
from convo.engine.turn import Asking
from convo.errors import StateFault, Usage
from convo.history import Link, Strategy
from convo.items import Item, Json, user
from convo.strategies import wanted
from convo.ui.bar import Standing
from convo.ui.completing import Offer
from convo.ui.medium import drawn_on
from convo.ui.status import status

if TYPE_CHECKING:
    from convo.cli.running import Show
    from convo.endpoints.contract import Endpoint
    from convo.engine.coming import Counting
    from convo.strategies import Sent

SHOWN_BEFORE = 5
"""Items that the owner puts before a request, of which /next shows the last."""


class AtPrompt(Desk):
    """A desk with a person at it; see `convo.ui.conversing.Look`. `show`: of the runs, where agents answer"""

    def __init__(self, *opened: Any) -> None:
        super().__init__(*opened)
        self._sums = Sums()
        self.show: Show | None = None

    async def switch(self, chat: Chat, model: str) -> None:
        """Let another model answer from the next turn on. raises: WrongOwner, BadSettings"""
        said = chat.asking.instructions
        chat.edges, asking = await self._reach(chat.session, model=model)
        chat.asking = replace(asking, instructions=said)

    async def own(self, chat: Chat, owner: str) -> tuple[Chat, str]:
        """The same conversation held by another owner, and what became of it. raises: Usage; as its parts do"""
        from convo.cli.converting import owned
        from convo.transfer.in_chat import with_owner

        made, carried = await with_owner(chat, named_owner(owner))
        made.noted = chat.noted
        await self._hold(made)
        return made, owned(made, carried)

    async def fork(self, chat: Chat, number: int | None) -> Chat:
        """A second session from here, or from the end of a turn. raises: Usage; as `standing_at` and `fork`"""
        if not chat.reread().path:
            raise Usage("nothing was said yet, so there is nothing to fork", hint="type a message")
        await chat.adopt()  # a fork in which nothing was said yet is none of the store's
        source = chat.session if number is None else await standing_at(self._store, chat.session, number)
        made = await fork(source, chat.asking, chat.edges)
        made.noted = chat.noted
        await self._hold(made)
        return made

    async def new(self, chat: Chat, name: str) -> Chat:
        """Another conversation, which begins under the same owner; `chat` is left. raises: Usage, Conflict"""
        from convo.cli.changing import begun

        made = await begun(chat, name)
        await self._move(chat, made)
        self._tell_new_file(made.session)
        return made

    async def resume(self, chat: Chat, handle: str) -> Chat:
        """The conversation of a handle; `chat` is left. raises: NotFound, Busy, Usage; as its parts do"""
        want = wanted((), handle, last=False)
        session = await recorded(self._store, want)
        if session and session.id == chat.session.id:
            raise Usage(f"{session.name} is this conversation", hint="/resume lists the others")
        if want.strategy is Strategy.REPLAY and want.handle and not session:
            there(want.handle)
        if session:
            await check_no_run(self._store, session)
            if not self._asked.agents and await self._store.agent_runs(session=session.id, limit=1):
                again = f"{called()} chat --from {quote(session.name)}"
                self._out.note(f"{session.name} used agents, and this chat does not; to use them: {again}")
        edges, asking = await self._reach(session)
        made = await open_chat(want, session, asking, edges)
        await self._move(chat, made)
        await made.catch_up()
        made.reread()
        return made

    async def recent(self, chat: Chat) -> str:
        return await recent(self._store)

    async def rename(self, chat: Chat, name: str) -> None:
        from convo.cli.changing import renamed

        await renamed(chat, name)

    async def export(self, chat: Chat, words: str) -> str:
        from convo.cli.changing import exported
        from convo.cli.known import Where

        assert self._settings
        return await exported(chat, words, self._settings, Where(self._asked.config))

    async def links(self, chat: Chat) -> Sequence[Link]:
        return await self._sums.links(chat)

    @property
    def prices(self) -> Mapping[str, Price]:
        assert self._settings
        return self._settings.prices

    async def standing(self, chat: Chat) -> Standing:
        assert self._settings
        return await self._sums.standing(chat, self._settings)

    async def suggest(self, before: str) -> tuple[int, Sequence[Offer]]:
        from convo.cli.offering import Offering

        assert self._settings
        return await Offering(self._store, self._settings).suggest(before)

    @property
    def editing(self) -> str:
        """How the prompt is edited."""
        assert self._settings
        return self._settings.editing

    def check_takes(self, chat: Chat, parts: Sequence[Json]) -> None:
        assert self._settings
        check_takes(chat.asking.model, parts, self._settings)

    async def compact(self, chat: Chat, words: str) -> str:
        """Compact as `words` wish, and what became of it. raises: as its parts do"""
        from convo.cli.shortening import compacted

        return await compacted(chat, words)

    async def inspect(self, chat: Chat, handle: str) -> str:
        from convo.cli.known import shown

        return await shown(self._store, handle or chat.session.id)

    def status(self, chat: Chat) -> str:
        return status(chat.session, chat.reread(), chat.asking.model)

    async def next(self, chat: Chat, words: str) -> str:
        from convo.engine.coming import coming
        from convo.ui.coming import screen

        said = [user(words)] if words else []
        asking, endpoint, sent = await self._request(chat, said)
        assert self._settings
        held, own, count = chat.reread(), self._settings.windows, self._counting(chat, endpoint)
        found = await coming(chat.session.name, held, said, asking, endpoint, count, own=own, sent=sent)
        return screen(found, drawn_on(sys.stderr), most=SHOWN_BEFORE)

    async def context(self, chat: Chat) -> str:
        """What fills the model's window now, by part; at a pause without what the agents would say."""
        from convo.engine.coming import window_now
        from convo.ui.window import meter

        asking, endpoint, sent = chat.asking, chat.edges.endpoint, None
        with suppress(StateFault):
            asking, endpoint, sent = await self._request(chat, ())
        assert self._settings
        count = self._counting(chat, endpoint)
        filling = await window_now(chat.reread(), asking, count, self._settings.windows, sent=sent)
        medium = drawn_on(sys.stderr)
        return medium.drawn("\n".join([f"  {asking.model}", *meter(filling, medium)]))

    async def _request(self, chat: Chat, said: Sequence[Item]) -> tuple[Asking, "Endpoint", "Sent | None"]:
        """How and where the next request is made; what travels, where agents decide on it. raises: as `foreseen`"""
        if self.show is None:
            return chat.asking, chat.edges.endpoint, None
        await self.show.opened(chat)
        found = await self.show.running.foreseen(said)
        return found.asking, found.endpoint, found.sent

    def _counting(self, chat: Chat, endpoint: "Endpoint") -> "Counting":
        from convo.engine.coming import counted_here, tried

        return tried(endpoint) if self._counts_here and endpoint is chat.edges.endpoint else counted_here

    async def _move(self, chat: Chat, made: Chat) -> None:
        """Let `made` be written by this process, and leave `chat` to others. raises: Busy"""
        made.noted = chat.noted
        await self._hold(made)
        left = self._holds.pop(chat.session.id, None)
        if left:
            await left.release()


def named_owner(word: str) -> Strategy:
    """raises: Usage  there is no such owner"""
    if word not in list(Strategy):
        raise Usage(f"no owner {word!r}", hint=f"one of {', '.join(Strategy)}")
    return Strategy(word)
