"""What a person can type after a slash.

A row is a name, how it is used, one line of help, and what it does to the conversation at hand.
What the commands do stands beside, by story: `going_back`, `elsewhere`, `asking_with`, `along`,
`copying`. What is not in the table is an error with a suggestion and never goes to a model; a message
that begins with a slash is written with two.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convo.errors import Usage
from convo.ui import along, asking_with, elsewhere, going_back
from convo.ui.completing import FILE
from convo.ui.copying import copy
from convo.ui.guide import guide
from convo.ui.thinking import reasoning

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing


@dataclass(frozen=True, slots=True)
class Command:
    """One row: `usage` is what follows the name, `run` gets it as it was typed.

    takes:  what can be completed behind it: MODEL, HANDLE, OWNER or FILE
    """

    usage: str
    help: str
    run: Callable[["Conversing", str], Awaitable[None]]
    takes: str = ""


MODEL, HANDLE, OWNER = "model", "handle", "owner"


async def help_(talk: "Conversing", _: str) -> None:
    rows = [(f"/{name} {row.usage}".strip(), row.help) for name, row in COMMANDS.items()]
    talk.say("\n".join(guide(rows, ALIASES, talk.medium.width)))


async def exit_(talk: "Conversing", _: str) -> None:
    talk.leaving = True


async def status(talk: "Conversing", _: str) -> None:
    talk.say(talk.look.status(talk.chat))
    if talk.runs:
        talk.say(f"  run         {talk.runs.status}")


async def next_(talk: "Conversing", words: str) -> None:
    talk.show(await talk.look.next(talk.chat, words) + "\n")


async def context(talk: "Conversing", _: str) -> None:
    talk.show(await talk.look.context(talk.chat) + "\n")


async def inspect(talk: "Conversing", handle: str) -> None:
    talk.show(await talk.look.inspect(talk.chat, handle) + "\n")


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
    "usage": Command("", "tokens of the last request and of the session", asking_with.usage),
    "cost": Command("", "what the session has cost", asking_with.cost),
    "reasoning": Command("", "what the model thought before its last answer", reasoning),
    "inspect": Command("[HANDLE]", "the chain as a tree", inspect, HANDLE),
    "model": Command("[NAME]", "show or change the model", model, MODEL),
    "system": Command("[TEXT]", "show or change the instructions; - for none", asking_with.system),
    "tools": Command("", "the tools that go with every turn", asking_with.tools),
    "attach": Command(
        "[FILE...]", "send files along with the next message, or list what goes along", along.attach, FILE
    ),
    "detach": Command("[FILE...]", "send nothing along, or not these", along.detach, FILE),
    "owner": Command("[OWNER]", "hand the conversation to replay, session, conversation or chain", owner, OWNER),
    "compact": Command("[FOCUS] [--keep-last N]", "let a shorter history stand in place of this one", compact),
    "retry": Command("", "ask the last message again", retry),
    "stop": Command("", "end the open run of agents for good", stop),
    "edit": Command("[TEXT]", "change the last message and ask again", going_back.edit),
    "undo": Command("", "take the last turn back", going_back.undo),
    "redo": Command("", "take up again what was taken back", going_back.redo),
    "rewind": Command("[N]", "go back to the end of turn N, or before the last turn", going_back.rewind),
    "fork": Command("[N]", "go on in a second session, from here or from the end of turn N", going_back.fork),
    "new": Command("[NAME]", "begin another conversation; this one stays", elsewhere.new),
    "clear": Command("[NAME]", "the same, on a clear screen", elsewhere.clear),
    "resume": Command("[HANDLE]", "go on with another conversation, or list the last ones", elsewhere.resume, HANDLE),
    "rename": Command("NAME", "give the conversation another name", elsewhere.rename),
    "export": Command(
        "[FILE]", "write it down, as the file's suffix says: .md, .html, .json, .jsonl", elsewhere.export, FILE
    ),
    "copy": Command("[code]", "put the last answer, or its last block of code, on the clipboard", copy),
    "exit": Command("", "leave; Ctrl-D does too", exit_),
}

ALIASES = {
    "quit": "exit",
    "q": "exit",
    "bye": "exit",
    "?": "help",
    "branch": "fork",
    "back": "undo",
    "regenerate": "retry",
    "sessions": "resume",
    "load": "resume",
    "switch": "resume",
    "save": "export",
    "title": "rename",
    "name": "rename",
    "reset": "clear",
    "tokens": "usage",
    "instructions": "system",
    "file": "attach",
    "compress": "compact",
}
"""What other chats call the same."""


def taken(name: str) -> str:
    """What a command takes, by its name; "" for what cannot be completed."""
    row = COMMANDS.get(ALIASES.get(name, name))
    return row.takes if row else ""


def understood(line: str) -> tuple[str, str]:
    """The name of the command in `line`, and the words after it. raises: Usage  there is no such command"""
    said, words = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = ALIASES.get(said.lower(), said.lower())
    if name not in COMMANDS:
        from difflib import get_close_matches  # for a slip of the finger

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
