"""A command of the shell, run from the prompt.

`!command` has the terminal to itself, so that pagers and editors work, and nobody else sees what it
says. `!!command` shows what it says and puts it into the next message as well, up to a bound: the
beginning and the end of what was longer.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from typing import TYPE_CHECKING

from convo.errors import Usage
from convo.items import Json
from convo.ui.signals import on_signal

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

MOST = 100_000
"""Characters of what a command said that go into a message."""

ONCE = 65_536

STOPPED = (-signal.SIGINT, 128 + signal.SIGINT)
"""How a command ends that the person stopped; what it said goes nowhere."""


async def shell(talk: "Conversing", line: str) -> None:
    """Carry out `line`, which begins with one ! or two. raises: Usage  it was pasted, or there is no command in it"""
    if any(text.startswith("!") and line.startswith(text) for text in talk.reader.pasted):
        raise Usage("a ! that was pasted runs nothing", hint="type it, or a space in front of it for a message")
    keeps = line.startswith("!!")
    command = line.lstrip("!").strip()
    if not command:
        raise Usage(
            "there is no command behind the !", hint="!ls shows what it says; !!ls puts it into the next message too"
        )
    with on_signal(signal.SIGINT, ignored), talk.reader.aside():  # the command hears Ctrl-C itself
        said, code = await (_kept(talk, command) if keeps else _run(command))
    if code:
        talk.say(ended(code))
    if keeps and code not in STOPPED:
        talk.along.append((f"!{command}", part(command, said, code)))
        talk.say("it goes along with the next message; /detach takes it out")


async def _run(command: str) -> tuple[str, int]:
    process = await _begun(command)
    return "", await process.wait()


async def _kept(talk: "Conversing", command: str) -> tuple[str, int]:
    process = await _begun(command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT)
    assert process.stdout
    pieces: list[bytes] = []
    while piece := await process.stdout.read(ONCE):
        pieces.append(piece)
        talk.show(piece.decode("utf-8", "replace"))
    said = b"".join(pieces).decode("utf-8", "replace")
    if said and not said.endswith("\n"):
        talk.show("\n")
    return said, await process.wait()


async def _begun(
    command: str, *, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> Process:
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        return await asyncio.create_subprocess_exec(shell, "-c", command, stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as wrong:
        why = (wrong.strerror or str(wrong)).lower()
        raise Usage(f"the shell {shell} cannot be started: {why}", hint="SHELL names the shell") from wrong


def part(command: str, said: str, code: int) -> dict[str, Json]:
    """What a command said as a part of a message."""
    ending = f"\n{ended(code)}" if code else ""
    return {"type": "input_text", "text": f"$ {command}\n{bounded(said.rstrip())}{ending}"}


def bounded(said: str) -> str:
    """`said`, or its two ends where it is too long."""
    if len(said) <= MOST:
        return said
    left = len(said) - MOST
    return f"{said[: MOST // 2]}\n[{left:,} characters left out]\n{said[-MOST // 2 :]}"


def ended(code: int) -> str:
    return f"(ended by signal {-code})" if code < 0 else f"(exit code {code})"


def ignored() -> None:
    """Whoever runs in the foreground has been told as well."""
