"""What `convo chat` does once its flags are read: ask once, or hand the terminal to the loop."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from convo.cli.at_prompt import AtPrompt
from convo.cli.changing import check_no_run
from convo.cli.desk import Asked, Desk, Out, ended
from convo.cli.wiring import store_of, url_of
from convo.config import Flags, Sources, read, resolve
from convo.engine.attaching import attached
from convo.engine.chat import Chat
from convo.errors import ConvoError, Interrupted, Usage
from convo.history import OWNERS, Link, Strategy
from convo.items import Event, Item, Json, kind, text, user
from convo.strategies import kind_of
from convo.ui.answer import Printer
from convo.ui.answering import watched

if TYPE_CHECKING:
    from convo.cli.conduct import Cast
    from convo.cli.running import Show

EXITS = {"completed": 0, "cancelled": 130}
"""Exit codes by how the turn ended; every other end is a failure."""

SLASHED = re.compile(r"(?<!\S)/(next|retry|status|undo)\b")
"""Commands that are typed at the prompt of a chat, where a hint names one."""


async def talk(asked: Asked, out: Out) -> int:
    """Carry out one `convo chat`; returns the exit code. raises: as its parts do"""
    along = [attached(place) for place in asked.attach]
    said = first_message(asked.prompt, along)
    if said is None and (out.as_json or out.as_jsonl):
        raise Usage("--json and --jsonl are about one turn", hint='convo chat --json "..."')
    cast = _cast(asked)
    sources = _sources(asked, cast.model if cast and asked.model is None else asked.model, out)
    async with store_of(resolve(sources)) as store, AsyncExitStack() as open_things:
        desk = AtPrompt(sources, store, open_things, asked, out)
        if asked.continues and not asked.run.agent:
            again = await _as_before(desk, asked, out)
            if again is not asked:
                asked, cast = again, _cast(again)
                model = cast.model if cast and asked.model is None else asked.model
                desk = AtPrompt(read(asked.config, Flags(model=model)), store, open_things, asked, out)
        chat = await desk.open()
        show = await shown(chat, cast, desk, out, asked) if cast else None
        if not show:
            await check_no_run(store, chat.session)
        if said is None:
            return await converse(chat, list(zip(asked.attach, along, strict=True)), desk, out, show)
        if show:
            from convo.cli.running import run_once

            return await run_once(show, said, out)
        return await ask_once(chat, said, desk, out)


def _sources(asked: Asked, model: str | None, out: Out) -> Sources:
    """The settings' sources, with a store in memory where a replayed conversation could have no other."""
    from convo.stores.open import is_writable

    sources = read(asked.config, Flags(model=model))
    is_replayed = asked.strategies == (Strategy.REPLAY,) or (
        asked.handle is not None and kind_of(asked.handle) is Strategy.REPLAY and not asked.strategies
    )
    storage = resolve(sources).storage
    if not is_replayed or storage.type == "none" or is_writable(url_of(storage)):
        return sources
    out.note(f"{storage} cannot be written: only the file of the conversation is saved")
    return read(asked.config, Flags(model=model, store="memory"))


def _cast(asked: Asked) -> "Cast | None":
    """The agents that --agent names; None without agents. raises: as `cast_of`"""
    if not asked.agents:
        return None
    from convo.cli.conduct import cast_of
    from convo.engine.state_file import writable

    if asked.run.state is not None:
        writable(asked.run.state)
    return cast_of(asked.run)


async def _as_before(desk: Desk, asked: Asked, out: Out) -> Asked:
    """`asked` with the agents, and -m, that the session had before. raises: Usage  flags that do not fit them"""
    found = await desk.agents_before()
    if found is not None:
        out.note(f"agents as before: {found.file}")
        model = found.model if asked.model is None else asked.model
        asked = replace(asked, model=model, run=replace(asked.run, agent=found.file))
    asked.run.check(system=asked.system, schema=asked.schema)
    return asked


async def shown(chat: Chat, cast: "Cast", desk: Desk, out: Out, asked: Asked) -> "Show":
    """The runs of the agents that were named. raises: as `Running.open`"""
    from convo.cli.running import Show

    cast = cast.asked_alike() if asked.model else cast.routed(desk.route)
    return await Show.open(chat, cast, desk, out, asked.run.state)


def first_message(prompt: str | None, along: Sequence[Json]) -> Item | None:
    """The message of a one-shot chat; None when a person is to be asked.

    along:   content parts that go with it
    raises:  Usage  there is nothing to send
    """
    if prompt is None:
        return None
    if not prompt.strip() and not along:
        raise Usage("there is nothing to send: the message is empty", hint='convo chat "..."')
    return user(prompt, *along)


async def converse(
    chat: Chat, along: Sequence[tuple[str, dict[str, Json]]], desk: AtPrompt, out: Out, show: "Show | None" = None
) -> int:
    """Hand the terminal to the loop, and say at the end how to come back."""
    from convo.ui.bar import Bar
    from convo.ui.conversing import Conversing
    from convo.ui.prompt import At, terminal_reader

    bar = None if out.quiet else Bar()
    reader = terminal_reader(At(desk.prompts, desk.suggest, desk.editing, bar.line if bar else None))
    talking = Conversing(
        chat,
        reader,
        desk,
        out=sys.stdout,
        err=sys.stderr,
        along=along,
        live=out.live,
        quiet=out.quiet,
        bar=bar,
        sheet=desk.sheet(),
        folded=desk.folded(),
    )
    owner = OWNERS[chat.session.strategy].words
    talking.note(f"{chat.asking.model}, held by {owner}; /help lists what else can be typed")
    if show:
        from convo.ui.medium import drawn_on
        from convo.ui.runs import Runs

        talking.runs, desk.show = Runs(talking, show, drawn_on(sys.stderr)), show
    code = await talking.run()
    back = await desk.way_back(talking.chat)
    if back:
        out.note(f"come back: {back}")
    return code


async def ask_once(chat: Chat, said: Item, desk: Desk, out: Out) -> int:
    """One turn; returns the exit code that its end stands for. raises: as the turn does"""
    printer = Printer(sys.stdout, sys.stderr, live=out.live, sheet=desk.sheet(), folded=desk.folded())
    chat.noted = out.note
    take = printed_line if out.as_jsonl else ignored if out.as_json else printer.take
    try:
        await chat.edges.endpoint.warm(chat.asking.wire_model)  # no such model: nothing is stored
        await desk.prepare(chat)
        await watched(chat.say([said], keep=False), take)
    except Interrupted as stopped:
        if out.as_jsonl or not ended(chat):
            raise
        out.note(stopped.message)
    except ConvoError as failure:
        if SLASHED.search(failure.hint):
            failure.hint = at_the_prompt(failure.hint, await desk.way_back(chat))
        raise
    finally:
        printer.end()
        if ended(chat) and not out.as_json:
            out.tell(desk.receipt(chat))
    link = ended(chat)
    assert link
    if out.as_json:
        sys.stdout.write(json.dumps(outcome(chat, link)) + "\n")
    return EXITS.get(link.status, 1)


def at_the_prompt(hint: str, way_back: str) -> str:
    """A hint that names a slash command, for somebody who has no prompt to type it at."""
    return f"{way_back}, and there: {hint}" if way_back else "repeat the command"


def printed_line(event: Event) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def ignored(event: Event) -> None:
    """Nothing is printed before the end."""


def outcome(chat: Chat, link: Link) -> dict[str, Json]:
    """The object of `convo chat --json`. source: DESIGN.md, "Settings and shapes"."""
    session, output = chat.session, answered(chat, link)
    return {
        "response_id": None if link.id.startswith("try_") else link.id,
        "session": session.name,
        "strategy": str(session.strategy),
        "conversation_id": session.handle if session.strategy is Strategy.CONVERSATION else None,
        "model": chat.asking.model,
        "output_text": "".join(text(item) for item in output if kind(item) == "message"),
        "output": output,
        "usage": link.usage,
        "status": link.status,
        "pending": [],
        "state_file": session.handle if session.strategy is Strategy.REPLAY else None,
    }


def answered(chat: Chat, link: Link) -> list[Item]:
    """The items of the answer: the owner's, or what came before it was stopped."""
    response = chat.turn.response if chat.turn else None
    if response:
        return list(response.get("output") or ())
    return [node.item for node in chat.held.path.after(link.saw)]
