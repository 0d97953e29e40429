"""What `convo repair` does with its arguments: lints, mends, keeps what came of it, tells.

What was read stays as it is: the mended history gets a name of its own, in the store or as a file.
Where nothing is wrong nothing is made.
"""

import asyncio
import os
import sys
from shlex import quote
from typing import NamedTuple

from convo.cli.saying import say, say_json
from convo.cli.subject import Subject, Where, subject
from convo.cli.wiring import endpoint_for, store_of
from convo.clock import SystemClock
from convo.config import choose, load
from convo.engine.item_file import check_free, write_items
from convo.engine.repairing import check_name, keep_session
from convo.errors import Usage
from convo.history import Scope, Session, Strategy
from convo.ids import random_id
from convo.inspection.linting import Change, Mended, for_a_file, for_a_session, lint
from convo.items import Json
from convo.stores.contract import Store
from convo.strategies import kind_of
from convo.ui.linting import mended as screen
from convo.ui.medium import medium_of


class Repair(NamedTuple):
    """What was asked for; `name` is a session's or a file's."""

    handle: str
    name: str
    dry_run: bool = False


def repaired(asked: Repair, where: Where, *, as_json: bool) -> None:
    """Mend what `asked.handle` names, beside it, and print what changed.

    raises:  as `subject`
             Unmendable  a finding has no mend
             Usage, Conflict  the new name is taken, or none
    """
    broken = subject(asked.handle, where)
    if broken.state:
        raise Usage("a paused run is not mended as a history", hint=f"convo resume {quote(asked.handle)}")
    to_file = is_file(asked.name)
    if broken.view.partial and not to_file:
        raise Usage("a request that goes on from what its owner holds is no whole history", hint="--as ./other.json")
    mended = (for_a_file if to_file else for_a_session)(broken.view) if lint(broken.view) else None
    if mended and to_file:
        check_free(asked.name) if asked.dry_run else write_items(asked.name, mended.view.items, broken.file)
    elif mended:
        asyncio.run(_kept(asked, broken, mended, where))
    tell(asked, broken, mended, as_json=as_json)


def is_file(name: str) -> bool:
    """Whether a new name is a file's."""
    return kind_of(name) is Strategy.REPLAY or name.endswith(".jsonl")


def tell(asked: Repair, broken: Subject, mended: Mended | None, *, as_json: bool) -> None:
    """Print what changed; None: nothing had to."""
    changes = mended.changes if mended else ()
    places = broken.paths
    if not as_json:
        medium = medium_of(sys.stdout, os.environ)
        say(screen(asked.name, mended, places, medium, kept=not asked.dry_run))
        return
    shape: dict[str, Json] = {
        "handle": asked.handle,
        "made": asked.name if mended and not asked.dry_run else None,
        "strategy": str(mended.view.strategy) if mended else None,
        "items": len(mended.view.items) if mended else len(broken.view.items),
        "changes": [_change(one, broken, places[one.at] if one.at is not None else "$") for one in changes],
    }
    say_json(shape)


def _change(one: Change, broken: Subject, path: str) -> dict[str, Json]:
    item = None if one.at is None else broken.view.items[one.at]
    known = {"code": one.code or None, "change": one.what, "message": one.why, "path": path, "index": one.at}
    return {**known, "id": item.get("id") if item else None}


async def _kept(asked: Repair, broken: Subject, mended: Mended, where: Where) -> Session | None:
    """The new session; None where nothing is to be made."""
    settings = load(where.config)
    async with store_of(settings) as store:
        await check_name(store, asked.name)
        if asked.dry_run:
            return None
        model, scope = await _goes_to(broken, where, store)
        clock = SystemClock()
        return await keep_session(
            store, mended.view, asked.name, model=model, scope=scope, clock=clock, new_id=random_id
        )


async def _goes_to(broken: Subject, where: Where, store: Store) -> tuple[str, Scope]:
    """The model that goes on with it, and its endpoint: those it had, else what the settings choose."""
    model, scope = broken.view.model, broken.view.scope
    if model and scope:
        return model, scope
    settings = load(where.config)
    choice = choose(settings, model, where=f"the record of {broken.handle}")
    async with endpoint_for(choice, settings, store) as endpoint:
        return str(choice.name), scope or endpoint.scope
