"""What `convo export` does: read the conversation, and write it in the form that was asked for.

What is only mirrored here is written as the mirror has it, and nobody is asked; what no store knows
is read from its endpoint, as `convo inspect` does.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from convo.cli.converting import owner_of
from convo.cli.known import Search, Where
from convo.cli.redacting import as_fields, lines, redacted
from convo.cli.saying import note, say_json
from convo.cli.wiring import store_of
from convo.config import Settings, load
from convo.engine.finding import absolute
from convo.engine.whole_file import lies_at, put
from convo.errors import Usage
from convo.history import HERE
from convo.inspection import Known
from convo.inspection.document import Document
from convo.inspection.redacting import Redacted
from convo.items import Json
from convo.stores.contract import Store
from convo.transfer.taking import Source, taken
from convo.transfer.writing import jsonl, markdown, replay

SUFFIXES: Mapping[str, str] = MappingProxyType(
    {".json": "replay", ".jsonl": "jsonl", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}
)


RUNSTATE = "runstate"


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one `convo export`; `form` is None where the file's suffix says it."""

    handle: str
    form: str | None = None
    file: Path | None = None
    force: bool = False
    links: bool = False
    data: bool = True
    redact: bool = False
    patterns: tuple[str, ...] = ()
    agent: str | None = None
    context: str | None = None
    schema: str | None = None
    provider: str | None = None
    as_json: bool = False
    config: Path | None = None


async def export_one(asked: Asked) -> None:
    """Write one conversation. raises: as its parts do; then nothing was written"""
    form, settings = form_of(asked), load(asked.config)
    check_free(asked)
    if form == RUNSTATE:
        await _export_run(asked, settings)
        return
    async with store_of(settings) as store:
        known = await Search(settings, store, Where(asked.config, asked.provider)).one(asked.handle)
        source = await as_mirrored(known, settings, store)
    if asked.file:
        not_itself(asked.file, source)
    document = part_of(source.document(), form, asked)
    hidden = redacted(document, asked.redact, asked.patterns, settings)
    document = hidden.document if hidden else document
    text = FORMS[form](document, asked)
    write(text, asked.file)
    if asked.file:
        tell(asked, form, document, hidden)
    for words in (*source.notes, *(lines(hidden) if hidden and not asked.as_json else ())):
        note(words)


def check_free(asked: Asked) -> None:
    """Raises Usage when the file exists and --force was not given. A pipe or a device is written into."""
    file = Path(absolute(str(asked.file))) if asked.file else None
    if file and not asked.force and os.path.lexists(file) and (file.is_file() or not file.exists()):
        raise Usage(f"{asked.file} exists", hint="--force overwrites it; or name another file with -o")


def form_of(asked: Asked) -> str:
    """The form to write in. raises: Usage  an option belongs to another one, or the suffix names no form"""
    ending = asked.file.suffix.lower() if asked.file else ""
    suffix = SUFFIXES.get(ending)
    if ending and suffix is None and asked.form is None:
        raise Usage(
            f"unknown file format {ending}; -o accepts {', '.join(dict.fromkeys(SUFFIXES))}",
            hint="use another suffix, or --format FORMAT",
        )
    form = asked.form or suffix or "replay"
    if asked.links and form != "jsonl":
        raise Usage(f"--links is for jsonl, not for {form}", hint="--format jsonl --links")
    if not asked.data and form not in ("markdown", "html"):
        raise Usage(f"--no-data is for markdown and html; {form} is nothing but data", hint="leave it out")
    if form == RUNSTATE:
        of_a_run(asked)
    elif named := next((f"--{name}" for name in ("agent", "context", "schema") if getattr(asked, name)), None):
        raise Usage(f"{named} is for runstate, not for {form}", hint="--format runstate --agent FILE:NAME")
    if asked.as_json and not asked.file:
        raise Usage("--json says what was written into a file", hint="-o FILE --json; --format jsonl prints JSON")
    return form


def of_a_run(asked: Asked) -> None:
    """raises: Usage  the flags do not fit a run"""
    if asked.agent is None:
        raise Usage("a run is written with its agents, and none are named", hint="--agent FILE.py:NAME")
    if asked.redact or asked.patterns:
        raise Usage(
            "a run without its secrets could not be gone on with", hint="--format replay --redact, for its conversation"
        )


async def _export_run(asked: Asked, settings: Settings) -> None:
    from convo.cli.exporting_runs import state_text
    from convo.cli.run_flags import RunFlags

    flags = RunFlags(agent=asked.agent, context=asked.context)
    text = await state_text(asked.handle, flags, asked.schema, settings, settings.places.data / "paused")
    write(text, asked.file)
    if asked.as_json:
        say_json({"file": str(asked.file), "format": RUNSTATE})


def write(text: str, file: Path | None) -> None:
    """Put `text` into a private file, or on stdout. raises: StoreReadOnly, StoreFull, StoreFault"""
    if file:
        put(lies_at(Path(absolute(str(file)))), text)
    else:
        sys.stdout.write(text)


def part_of(document: Document, form: str, asked: Asked) -> Document:
    """What of a document is written in this form; what is not written does not have to be gone over."""
    if form == "replay" or (form == "jsonl" and not asked.links):
        return Document(document.items, document.acknowledged)
    return document if asked.data else replace(document, links=())


async def as_mirrored(known: Known, settings: Settings, store: Store) -> Source:
    """What `known` holds; only our own endpoint is looked at, which is this store."""
    if known.scope != HERE:
        return await taken(known, store)
    async with owner_of(known, settings, store) as endpoint:
        return await taken(known, store, endpoint)


def not_itself(file: Path, source: Source) -> None:
    """raises: Usage  the file is the conversation's own"""
    for own in (source.held.handle, source.handle):
        if own and os.path.exists(own) and os.path.exists(file) and os.path.samefile(own, file):
            raise Usage(f"{file} is the conversation's own file", hint="name another one with -o")


def _html(document: Document, asked: Asked) -> str:
    from convo.pages.conversation import page

    return page(document, data=asked.data)


FORMS: Mapping[str, Callable[[Document, Asked], str]] = MappingProxyType(
    {
        "replay": lambda document, asked: replay(document),
        "jsonl": lambda document, asked: jsonl(document, links=asked.links),
        "markdown": lambda document, asked: markdown(document, data=asked.data),
        "html": _html,
    }
)


def tell(asked: Asked, form: str, document: Document, hidden: Redacted | None) -> None:
    """Say what was written."""
    if asked.as_json:
        told: dict[str, Json] = {"file": str(asked.file), "format": form, "items": len(document.items)}
        told |= as_fields(hidden)
        say_json(told)
    else:
        note(f"{len(document.items):,} items are in {asked.file}")
