"""The prompt at a pause: each call that waits is shown, and the person chooses.

A decision is kept as it is made, so somebody who leaves in the middle has decided what they have
decided. Nothing runs before all of them are. To leave is always possible and never decides anything:
an empty terminal, Ctrl-C and Ctrl-D leave.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from convo.engine.running import Running
from convo.errors import ConvoError, Interrupted
from convo.run import Decided, Given
from convo.run.inbox import Waiting, asked
from convo.ui.asking import one_call
from convo.ui.medium import Medium, fitted
from convo.ui.rewriting import in_an_editor
from convo.ui.signals import on_signal

Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""Puts a question and gives the answer. raises: EOFError, Interrupted"""

Say: TypeAlias = Callable[[str], None]

LEAVE = "leave"
ABORT = "abort"

WORDS = {
    "y": "approve",
    "yes": "approve",
    "a": "approve",
    "n": "reject",
    "no": "reject",
    "r": "reject",
    "e": "edit",
    "l": LEAVE,
    "q": LEAVE,
    "rerun": "again",
    "o": "output",
}
"""Other words for the choices."""

USAGE = {"reject": "reject [why]", "never": "never [why]", "output": "output TEXT"}

CHOICES = ("approve", "reject", "edit", "always", "never", LEAVE)
HOSTED = ("approve", "reject", "always", "never", LEAVE)
UNKNOWN = ("again", "output", "reject", ABORT, LEAVE)


async def settle(running: Running, ask: Ask, say: Say, medium: Medium) -> bool:
    """Put every pending call to the person.

    returns:  whether the run can go on: each call is decided on, and the run was not ended
    """
    while running.pending:
        call = asked(running.pending[0], running.run.agent)
        say(one_call(call, medium))
        if not await _decided(running, call, ask, say, medium):
            return False
    return running.unfinished


async def _decided(running: Running, call: Waiting, ask: Ask, say: Say, medium: Medium) -> bool:
    """Ask until there is a decision that fits; False when the person leaves."""
    choices = UNKNOWN if call.unknown else HOSTED if call.hosted else CHOICES
    question = fitted(", ".join(USAGE.get(name, name) for name in choices) + "? ", medium.width)
    while True:
        try:
            name, why = understood(await ask(question))
        except (EOFError, Interrupted):
            return False
        if name == LEAVE:
            return False
        if name not in choices:
            say(f"one of {', '.join(choices)}; {LEAVE} decides nothing")
            continue
        try:
            await (running.stop() if name == ABORT else running.decide(await _event(name, call, why)))
        except ConvoError as wrong:
            say(f"convo: {wrong.message}" + (f"\n  try: {wrong.hint}" if wrong.hint else ""))
            continue
        return True


def understood(line: str) -> tuple[str, str]:
    """The choice in `line`, and what follows it."""
    word, _, why = line.strip().partition(" ")
    return WORDS.get(word.lower(), word.lower()), why.strip()


async def _event(name: str, call: Waiting, why: str) -> Decided | Given:
    match name:
        case "output":
            return Given(call.call_id, why)
        case "edit":
            return Decided(call.call_id, approve=True, arguments=await _edited(call.arguments))
    approve = name in ("approve", "always", "again")
    return Decided(call.call_id, approve, None if approve else why or None, name in ("always", "never"))


async def _edited(arguments: str) -> str:
    """What the person's editor leaves; Ctrl-C is the editor's own meanwhile, and the lease is renewed."""
    with on_signal(signal.SIGINT, _not_ours):
        return await asyncio.to_thread(in_an_editor, arguments)


def _not_ours() -> None:
    """Whoever has the terminal takes the key."""
