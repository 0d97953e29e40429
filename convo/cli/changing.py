"""Another conversation within a chat, the name of this one, and a copy of it in a file.

What /new, /rename and /export do. A chat is open while they work, so whatever cannot be done is
said before anything has changed.
"""

import os
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from convo.config import Settings
from convo.engine.chat import Chat
from convo.engine.naming import fit
from convo.engine.open_runs import open_run
from convo.engine.opening import open_chat
from convo.errors import StateFault, Usage
from convo.history import Session
from convo.stores.contract import Store
from convo.stores.rules import name_taken
from convo.strategies import Wanted

if TYPE_CHECKING:
    from convo.cli.known import Where

SUFFIX = ".md"
"""What a conversation is written as where no file is named."""


async def begun(chat: Chat, name: str) -> Chat:
    """A new conversation under the same owner and model; nothing is stored. raises: Usage, Conflict  its name"""
    if name:
        await free(chat.edges.store, name)
    return await open_chat(Wanted(chat.session.strategy), None, chat.asking, chat.edges, name=name)


async def renamed(chat: Chat, name: str) -> None:
    """Give the open session another name. raises: Usage  it cannot be one;  Conflict  another session has it"""
    await free(chat.edges.store, name)
    session = replace(chat.session, name=name)
    if chat.record.saved:
        await chat.record.update(session)
    else:
        chat.record.session = session


async def free(store: Store, name: str) -> None:
    if await store.session(fit(name)):
        raise name_taken(name)


def not_there(name: str, chat: Chat) -> Path:
    """The file of a name. raises: Usage  it is there already"""
    file = Path(os.path.expanduser(name))
    if os.path.lexists(file):
        over = f"convo export {quote(chat.session.name)} -o {quote(str(file))} --force"
        raise Usage(f"{file} is there already", hint=f"choose another name, or {over}")
    return file


async def exported(chat: Chat, words: str, settings: Settings, where: "Where") -> str:
    """Write the conversation into a file that is not there yet; what became of it. raises: Usage; as its parts do"""
    from convo.cli.exporting import FORMS, Asked, as_mirrored, form_of, part_of, write
    from convo.cli.known import Search

    if not chat.reread().path:
        raise Usage("nothing was said yet, so there is nothing to write down", hint="type a message")
    await chat.adopt()
    file = not_there(words or f"{chat.session.name}{SUFFIX}", chat)
    asked = Asked(chat.session.id, file=file)
    form, store = form_of(asked), chat.edges.store
    known = await Search(settings, store, where).one(chat.session.id)
    document = part_of((await as_mirrored(known, settings, store)).document(), form, asked)
    write(FORMS[form](document, asked), file)
    return f"{len(document.items):,} items are in {file}"


async def check_no_run(store: Store, session: Session) -> None:
    """raises: StateFault  a run of agents is open, whose calls have no output yet"""
    if await open_run(store, session):
        raise StateFault(
            f"a run of agents is open in {session.name!r}, and its calls have no output yet",
            hint=f"convo resume {quote(session.name)} --agent FILE.py:NAME, or convo approvals",
        )
