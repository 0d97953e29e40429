"""Makes a conversation smaller for whoever owns it.

    made     the window, and what both take in tokens; nothing has changed yet
    put      the branch first, then the window in place of the history, in one change

Between the two anybody may go on with the conversation: what was said meanwhile stands behind the
window. So a kill at any moment leaves the history before or the history after, and the one before
keeps a handle either way. A conversation cannot be changed from here: its endpoint does it in its own
list where it can, else a new one is seeded, which has to be wanted.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote

from convo.compaction import Mode, Plan, Standing, Way, Wish, instead, last_compaction, plan
from convo.engine.chat import Chat
from convo.engine.coming import tried
from convo.engine.opening import history_of_conversation
from convo.errors import ConvoError, EndpointFault, Refused, StateFault, Usage
from convo.history import HERE, Key, Link, Path, Strategy
from convo.items import Item, Json, Response
from convo.strategies import Held, behind, fresh, replaced
from convo.tokens import Count, count
from convo.transfer.branches import branched
from convo.transfer.seeding import forget, seeded
from convo.transfer.summing import check_compacted, collected, shorter

ANSWERED = ("completed", "incomplete")

TRIGGER: Mapping[str, Json] = {"type": "compaction_trigger"}
"""The item that asks an endpoint for nothing but a compaction."""

COMPACTION: Sequence[Json] = [{"type": "compaction"}]
"""How a link says that it was one."""


@dataclass(frozen=True, slots=True)
class Made:
    """A window that nobody has put in place yet.

    point:          the history that it stands for, the turns that it keeps included
    window:         what stands in its place; empty where the endpoint does it in its own list
    before, after:  tokens, by the same measure
    usage:          of making it; None where nobody said
    """

    plan: Plan
    point: Path
    window: tuple[Item, ...]
    before: Count
    after: Count
    usage: Mapping[str, Json] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction came to.

    old:    the handle by which the history before it goes on; None where it stays in the same list
    later:  how many items were written while it was made, and stand behind the window
    """

    made: Made
    after: Count
    old: str | None
    later: int = 0


async def made(chat: Chat, wish: Wish, *, confirmed: bool = False, preview: bool = False) -> Made:
    """A window for what `chat` holds; nothing is changed.

    confirmed:  a conversation may go on under another handle
    raises:     StateFault  a call waits for its output, or the window would not be smaller
                Usage       it cannot be done so;  what the endpoint answers
                StoreFull   the disk is nearly full; the model is not asked
    """
    standing = await _standing(chat)
    planned = plan(standing, wish)
    if not preview:
        await chat.edges.store.upkeep.check_room()
    if planned.way is Way.IN_PLACE and preview:
        planned = instead(planned, here=standing.here)
    if standing.strategy is Strategy.CONVERSATION and planned.way is not Way.IN_PLACE and not (confirmed or preview):
        raise _to_confirm(chat.session.handle)
    if planned.way is Way.IN_PLACE:
        there = await _of_conversation(chat, standing.path)
        return Made(planned, standing.path, (), there, there)
    found = await shorter(planned, chat.asking, chat.edges.endpoint, auto=wish.mode is Mode.AUTO)
    counts: list[tuple[Count, Count]] = []
    for window in found.windows:
        counts.append(await _measured(chat, standing.path.items, window))
        before, after = counts[-1]
        if after.tokens < before.tokens:
            return Made(found.plan, standing.path, window, before, after, found.usage, found.notes)
    before, after = counts[-1]
    raise StateFault(
        f"the compacted history would not be smaller: {before} tokens before, {after} after; nothing was changed",
        hint="compact when more has been said, or convo chat with a model that sums up better",
    )


async def put(chat: Chat, one: Made, *, confirmed: bool = False) -> Compacted:
    """Let `one` stand in place of what it was made of; this process has the right to write.

    raises:  Conflict  what it was made of is no longer there;  StoreFault;  what the endpoint answers
    """
    await chat.adopt()
    if one.plan.way is Way.IN_PLACE:
        return await _in_place(chat, one, confirmed=confirmed)
    if chat.session.strategy is Strategy.CONVERSATION:
        return await _elsewhere(chat, one)
    link_id = chat.edges.new_id("try")
    await chat.catch_up()  # so that the branch has what was said meanwhile as well
    chat.reread()
    async with branched(chat, link_id) as old:
        await chat.exchange(
            lambda held: replaced(held, one.point, one.window), lambda held: _link(chat, one, held, link_id)
        )
    later = len(chat.held.path) - len(fresh(one.window, chat.session.strategy))
    return Compacted(one, one.after, old, later)


# -- what there is --------------------------------------------------------------------------------


async def _standing(chat: Chat) -> Standing:
    """What the owner has confirmed: a conversation is asked, since others may write in it."""
    held = chat.reread()
    path = held.path.upto(held.mark)
    if held.strategy is Strategy.CONVERSATION and held.handle:
        path = await history_of_conversation(held.handle, chat.edges)
    return Standing(held.strategy, path, chat.edges.endpoint.scope == HERE, await _stored(chat, held))


async def _stored(chat: Chat, held: Held) -> Mapping[Key, str]:
    """The responses that the endpoint can look up, by where they ended."""
    scope, session = chat.edges.endpoint.scope, chat.session
    found = {
        link.head: link.id
        for link in await chat.edges.store.links(session.id)
        if link.stored and link.status in ANSWERED and link.id.startswith("resp_") and link.scope == scope
    }
    if held.strategy is Strategy.CHAIN and held.handle:
        return {**found, held.mark: held.handle}
    edited = (held.path.head, held.mark) != (session.head, session.mark)
    return found if edited or session.link not in found.values() else {**found, held.mark: str(session.link)}


async def _measured(chat: Chat, before: Sequence[Item], after: Sequence[Item]) -> tuple[Count, Count]:
    """Tokens of both: the endpoint's own count, or ours where it has none."""
    ask = tried(chat.edges.endpoint)
    theirs = [await ask({"model": chat.asking.wire_model, "input": list(_sent(items))}) for items in (before, after)]
    one, other = theirs
    if one is not None and other is not None:
        return Count(one, estimated=False), Count(other, estimated=False)
    return count(before), count(after)


def _sent(items: Sequence[Item]) -> tuple[Item, ...]:
    return fresh(items, Strategy.CHAIN)


async def _of_conversation(chat: Chat, path: Path) -> Count:
    """Tokens of what a model is shown of a conversation."""
    body = {"model": chat.asking.wire_model, "conversation": chat.session.handle}
    theirs = await tried(chat.edges.endpoint)(body)
    return count(path.items[last_compaction(path.items) or 0 :]) if theirs is None else Count(theirs, estimated=False)


def _link(chat: Chat, one: Made, held: Held, link_id: str) -> Link:
    """The call of a compaction; what it made is what the next one sees."""
    head = Path(held.path.root).grow(fresh(one.window, held.strategy)).head
    session = chat.session
    return Link(
        id=link_id,
        saw=head,
        head=head,
        sent=0,
        model=chat.asking.model,
        strategy=held.strategy,
        status="completed",
        created_at=chat.edges.clock.now(),
        parent=session.link,
        session=session.id,
        scope=session.scope,
        parameters={"context_management": COMPACTION},
        usage=one.usage,
        stored=False,
    )


# -- a conversation -------------------------------------------------------------------------------


async def _in_place(chat: Chat, one: Made, *, confirmed: bool) -> Compacted:
    """Let the endpoint put a compaction into its list.

    raises:  Usage          it refused, and a new conversation was not agreed to
             EndpointFault  it answered without a compaction item; what it added is deleted again
    """
    handle, asking = chat.session.handle or "", chat.asking
    said = {"instructions": asking.instructions} if asking.instructions else {}
    try:
        response = await collected(
            chat.edges.endpoint, {"model": asking.wire_model, **said, "input": [TRIGGER], "conversation": handle}
        )
    except Refused as refused:
        if not confirmed:
            raise _to_confirm(handle) from refused
        other = await made(chat, Wish(mode=Mode.INPUT), confirmed=True)
        return await _elsewhere(chat, other)
    try:
        check_compacted(response)
    except EndpointFault as fault:
        left = await _deleted_again(chat, handle, response)
        raise EndpointFault(
            f"{fault.message}; {left or 'nothing was changed'}",
            code=fault.code,
            hint=f"convo compact {quote(handle)} --mode input --yes, for a new conversation",
        ) from fault
    path = await history_of_conversation(handle, chat.edges)
    output = response.get("output") or ()

    def mirrored(held: Held) -> Held:
        waiting = [node.item for node in held.unacknowledged]
        return replace(held, path=path.grow(waiting), mark=path.head)

    def link(held: Held) -> Link:
        saw = path.first(len(path) - len(output)).head
        done = _link(chat, one, held, response.get("id") or chat.edges.new_id("try"))
        used = response.get("usage")
        return replace(done, saw=saw, head=path.head, usage=used, stored=True, conversation_id=handle)

    await chat.exchange(mirrored, link)
    return Compacted(one, await _of_conversation(chat, path), None, len(chat.held.unacknowledged))


async def _deleted_again(chat: Chat, handle: str, response: Response) -> str:
    """Delete the items of an unwanted answer from a conversation; in words, what could not be deleted."""
    stay = 0
    for item in response.get("output") or ():
        try:
            await chat.edges.endpoint.delete_item(handle, str(item.get("id")))
        except ConvoError:
            stay += 1
    return f"{stay} of the items of its answer could not be deleted from {handle}" if stay else ""


async def _elsewhere(chat: Chat, one: Made) -> Compacted:
    """Seed a new conversation with the window, and with what was said in the old one meanwhile."""
    old, owner = chat.session.handle, Strategy.CONVERSATION
    later = behind(await history_of_conversation(old or "", chat.edges), one.point)
    there = await seeded(fresh((*one.window, *later), owner), chat.edges)

    def moved(held: Held) -> Held:
        waiting = [node.item for node in held.unacknowledged]
        return replace(held, path=there.path.grow(waiting), mark=there.path.head, handle=there.handle)

    def link(held: Held) -> Link:
        link = _link(chat, one, held, chat.edges.new_id("try"))
        return replace(link, saw=there.path.head, head=there.path.head)

    try:
        await chat.exchange(moved, link)
    except BaseException:
        with suppress(ConvoError):
            now = await chat.edges.store.session(chat.session.id)
            if now is None or now.handle != there.handle:
                await forget(there.handle, chat.edges)
        raise
    return Compacted(one, one.after, old, len(later) + len(chat.held.unacknowledged))


def _to_confirm(handle: str | None) -> Usage:
    return Usage(
        f"{handle} would go on as a new conversation with the compacted history; the old one stays as it is",
        hint="--yes agrees to that",
    )
