"""Keeps a mended history as a record beside the one that was read.

Nothing that was read is touched. A record's path goes through the same nodes as far as both agree, so
only what was mended is new, and it hangs on the last response before that as its fork.
"""

from convo.clock import Clock
from convo.engine.naming import fit
from convo.errors import Usage
from convo.history import OWNERS, Path, Scope, Session, root
from convo.ids import NewId
from convo.inspection.linting import View
from convo.stores.contract import Change, Growth, Store


async def keep_session(
    store: Store, mended: View, name: str, *, model: str, scope: Scope, clock: Clock, new_id: NewId
) -> Session:
    """A new session that holds `mended`.

    model, scope:  where its turns go
    raises:        Usage     `name` could be taken for another handle, or an item cannot be kept
                   Conflict  another session has it
    """
    path = Path(root(store.tenant)).grow(mended.items)
    now = clock.now()
    session = Session(
        id=new_id("ses"),
        name=fit(name),
        strategy=mended.strategy,
        model=model,
        head=path.head,
        mark=path.first(mended.owned).head if OWNERS[mended.strategy].remembers else path.head,
        created_at=now,
        used_at=now,
        scope=scope,
        link=await _parent(store, mended),
        handle=mended.handle,
        instructions=mended.instructions,
    )
    await store.commit(Change(grow=(Growth(path.root, path.items),), session=session, expect=None))
    return session


async def check_name(store: Store, name: str) -> None:
    """Make sure that a session may be called that. raises: Usage"""
    there = await store.session(fit(name))
    if there:
        raise Usage(f"there is a session {name!r} already", hint=f"another name: --as {name}-2")


async def _parent(store: Store, mended: View) -> str | None:
    """The last response before the first thing that was mended, if the store has it."""
    if mended.anchor:
        return mended.anchor.id if await store.link(mended.anchor.id) else None
    path = Path(root(store.tenant)).grow(mended.items)
    heads = {path.root, *path.keys}
    there = [step.link for step in mended.steps if step.link.head in heads]
    return there[-1].id if there and await store.link(there[-1].id) else None
