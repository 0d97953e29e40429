"""What a person can type after a slash.

A row is a name, how it is used, one line of help, and what it does to the conversation at hand.
What is not in the table is an error with a suggestion and never goes to a model; a message that
begins with a slash is written with two.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from convo.errors import Usage
from convo.ui import going_back

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing


@dataclass(frozen=True, slots=True)
class Command:
    """One row: `usage` is what follows the name, `run` gets it as it was typed."""

    usage: str
    help: str
    run: Callable[["Conversing", str], Awaitable[None]]


async def help_(talk: "Conversing", _: str) -> None:
    width = max(len(f"/{name} {row.usage}") for name, row in COMMANDS.items())
    for name, row in COMMANDS.items():
        talk.say(f"  {f'/{name} {row.usage}':<{width}}  {row.help}")
    talk.say("  //text" + " " * (width - 4) + "a message that begins with a slash")


async def exit_(talk: "Conversing", _: str) -> None:
    talk.leaving = True


async def status(talk: "Conversing", _: str) -> None:
    talk.say(talk.look.status(talk.chat))
    if talk.runs:
        talk.say(f"  run         {talk.runs.status}")


async def next_(talk: "Conversing", words: str) -> None:
    talk.say(await talk.look.next(talk.chat, words))


async def context(talk: "Conversing", _: str) -> None:
    talk.say(await talk.look.context(talk.chat))


async def inspect(talk: "Conversing", handle: str) -> None:
    talk.say(await talk.look.inspect(talk.chat, handle))


async def model(talk: "Conversing", name: str) -> None:
    if name:
        await talk.look.switch(talk.chat, name)
    talk.say(f"model {talk.chat.asking.model}")


async def owner(talk: "Conversing", name: str) -> None:
    if name:
        talk.chat, told = await talk.look.own(talk.chat, name)
        talk.say(told)
    else:
        talk.say(talk.look.status(talk.chat))
    if talk.runs:
        talk.say(f"  run         {talk.runs.status}")


async def compact(talk: "Conversing", words: str) -> None:
    talk.say(await talk.look.compact(talk.chat, words))


async def retry(talk: "Conversing", _: str) -> None:
    await (talk.runs.again() if talk.runs else talk.answer(talk.chat.again()))


async def stop(talk: "Conversing", _: str) -> None:
    if not talk.runs:
        raise Usage("no agents answer here, so no run is open", hint="Ctrl-C stops an answer")
    await talk.runs.stop()


COMMANDS = {
    "help": Command("", "this list", help_),
    "status": Command("", "who owns the conversation, where its head stands, what is unacknowledged", status),
    "next": Command("[TEXT]", "the exact body of the next request, and what its owner will put before it", next_),
    "context": Command("", "what fills the model's window, by part", context),
    "inspect": Command("[HANDLE]", "the chain as a tree", inspect),
    "model": Command("[NAME]", "show or change the model", model),
    "owner": Command("[OWNER]", "hand the conversation to replay, session, conversation or chain", owner),
    "compact": Command("[FOCUS] [--keep-last N]", "let a shorter history stand in place of this one", compact),
    "retry": Command("", "ask the last message again", retry),
    "stop": Command("", "end the open run of agents for good", stop),
    "edit": Command("[TEXT]", "change the last message and ask again", going_back.edit),
    "undo": Command("", "take the last turn back", going_back.undo),
    "redo": Command("", "take up again what was taken back", going_back.redo),
    "rewind": Command("[N]", "go back to the end of turn N, or before the last turn", going_back.rewind),
    "fork": Command("[N]", "go on in a second session, from here or from the end of turn N", going_back.fork),
    "exit": Command("", "leave; Ctrl-D does too", exit_),
}

ALIASES = {"quit": "exit", "q": "exit", "?": "help"}


def understood(line: str) -> tuple[str, str]:
    """The name of the command in `line`, and the words after it. raises: Usage  there is no such command"""
    said, words = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = ALIASES.get(said.lower(), said.lower())
    if name not in COMMANDS:
        near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        meant = f"/{near[0]}" if near else "/help"
        raise Usage(f"no command '/{said}'; nothing was sent", hint=f"{meant}, or //{said} for a message")
    return name, words.strip()


async def obey(talk: "Conversing", line: str) -> None:
    """Carry out one slash command. raises: as `understood`; what the command raises"""
    name, words = understood(line)
    if talk.runs:
        talk.runs.check(name)
    await COMMANDS[name].run(talk, words)
