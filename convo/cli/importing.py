"""What `convo import` does: read every conversation in the file, then store each as a session.

All of them are read before the first is stored, so that a file that is wrong somewhere leaves nothing
behind. Those that came over before are left out, so that an import that was killed can be repeated. Who answers
from now on is the model that the file names, else the one that the settings choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from convo.cli.converting import scope_of
from convo.cli.saying import note, say, say_json
from convo.cli.wiring import store_of
from convo.clock import SystemClock
from convo.config import Settings, choose, load
from convo.engine.naming import fit
from convo.errors import BadSettings, Conflict, NotFound, Usage
from convo.history import Session
from convo.ids import random_id
from convo.inspection.document import Document
from convo.items import Json
from convo.transfer.beside import Beside
from convo.transfer.keeping import Answers, came_before, keep, wish
from convo.transfer.reading import documents_in
from convo.ui.answer import safe
from convo.ui.labelled import counted


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one `convo import`."""

    file: str
    name: str | None = None
    only: str | None = None
    dry_run: bool = False
    as_json: bool = False
    config: Path | None = None


async def import_file(asked: Asked) -> None:
    """Store what is in the file, and say what became of it. raises: as its parts do"""
    documents = wanted(documents_in(asked.file), asked)
    settings = load(asked.config)
    if asked.dry_run:
        for document in documents:
            tell(document, None, as_json=asked.as_json)
        return
    async with store_of(settings) as store:
        name = None if asked.name is None else fit(asked.name)
        there = await came_before(documents, store, name)
        beside = Beside(store, SystemClock(), random_id)
        for document, before in zip(documents, there, strict=True):
            try:
                made = before or await keep(document, answers(document, settings), beside, name)
            except Conflict:  # the name is taken, or another process imports the same at this moment
                (before,) = await came_before([document], store, name)
                if before is None:
                    raise
                made = before
            tell(document, made, as_json=asked.as_json, before=before is not None)
        if len(documents) == 1 and any(there):
            note(f"imported before; to import it once more: convo import {quote(asked.file)} --as NAME")


def wanted(documents: Sequence[Document], asked: Asked) -> Sequence[Document]:
    """Those that were asked for. raises: NotFound  none is called so;  Usage  one name for several"""
    if asked.only is not None:
        documents = [one for one in documents if asked.only in (one.name, wish(one))]
        if not documents:
            raise NotFound("conversation in the file", asked.only, hint=f"convo import {asked.file} --dry-run")
    if asked.name is not None and len(documents) != 1:
        raise Usage(
            f"--as names one session, and the file holds {counted(len(documents), 'conversation')}", hint="--only"
        )
    return documents


def answers(document: Document, settings: Settings) -> Answers:
    """Who answers in it from now on; a model that nobody here knows gives way to the settings' own."""
    try:
        choice = choose(settings, document.model, where="the file")
    except BadSettings:
        choice = choose(settings)
    return Answers(str(choice.name), scope_of(choice))


def tell(document: Document, made: Session | None, *, as_json: bool, before: bool = False) -> None:
    """Say of one conversation what it is, and which session it became; `before`: in an earlier import."""
    name = made.name if made else wish(document)
    if as_json:
        told: dict[str, Json] = {
            "session": made.name if made else None,
            "name": document.name,
            "items": len(document.items),
            "links": len(document.links),
            "model": made.model if made else document.model,
        }
        say_json(told)
    else:
        say(safe(f"{name}  {counted(len(document.items))}") + ("  came before" if before else ""))
