"""Which owner a handle belongs to, and what the flags of a command ask for.

`resp_` and `conv_` say it themselves; a path is a file; anything else is a session's name or id.
Naming one owner and handing over another one's handle is refused before anything is read.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from convo.errors import Usage, WrongOwner
from convo.history import OWNERS, Strategy
from convo.items.ids import is_id

TURN = re.compile(r"(.+)@(-?\d{1,9})", re.ASCII)
"""A handle and one of its turns."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the flags ask for.

    strategy:  named, or implied by the handle; None: whatever the session's record says
    handle:    None for a new conversation
    last:      go on with the session used last
    """

    strategy: Strategy | None
    handle: str | None = None
    last: bool = False


def wanted(flags: Collection[Strategy], handle: str | None, *, last: bool = False) -> Wanted:
    """Decide what `--replay --session --conversation --chain --from -c` ask for together.

    raises:  WrongOwner  two owners, or a handle of another owner than the one named
             Usage       -c together with --from, or a malformed id
    """
    if handle:
        check_handle(handle)
    belongs = kind_of(handle) if handle else None
    if len(flags) > 1:
        named = " and ".join(f"--{flag}" for flag in sorted(flags))
        raise WrongOwner(f"one owner a conversation: {named} exclude each other{_whose(handle)}", hint=_try(belongs))
    if last and handle:
        raise Usage("-c goes on with the session used last; --from names another", hint="use one of them")
    strategy = next(iter(flags), None)
    if strategy and handle and belongs not in (strategy, Strategy.SESSION) and _told_apart(strategy, belongs):
        raise WrongOwner(f"--{strategy} takes {OWNERS[strategy].handle}{_whose(handle)}", hint=_try(belongs))
    return Wanted(strategy or _implied(belongs), handle, last)


def at_turn(handle: str) -> tuple[str, int | None]:
    """What "HANDLE@N" names, and N; None where no turn is named. Counted from 1; -1 is all but the last turn."""
    found = TURN.fullmatch(handle)
    return (found[1], int(found[2])) if found else (handle, None)


def check_handle(handle: str) -> None:
    """Refuse a malformed id of a response or a conversation, such as "conv_1/../../admin".

    raises:  Usage
    """
    if kind_of(handle) in WORDS and not is_id(handle):
        shown = repr(handle[:64])[1:-1] + ("..." if len(handle) > 64 else "")
        raise Usage(f"'{shown}' is not the id of a {WORDS[kind_of(handle)]}", hint="convo sessions lists what there is")


WORDS = {Strategy.CHAIN: "response", Strategy.CONVERSATION: "conversation"}
"""The owners whose handles are ids, and the things that these name."""


def kind_of(handle: str) -> Strategy:
    """The owner that a handle of this form belongs to."""
    for strategy, owner in OWNERS.items():
        if owner.prefix and handle.startswith(owner.prefix):
            return strategy
    if handle.endswith(".json") or "/" in handle or "\\" in handle:
        return Strategy.REPLAY
    return Strategy.SESSION


def _told_apart(strategy: Strategy, belongs: Strategy | None) -> bool:
    """A file may have any name and a session's name may look like one: only ids are certain."""
    certain = {Strategy.CONVERSATION, Strategy.CHAIN}
    return belongs in certain or strategy in certain


def _implied(belongs: Strategy | None) -> Strategy | None:
    """A session's name leaves the owner to its record."""
    return None if belongs is Strategy.SESSION else belongs


def _whose(handle: str | None) -> str:
    if not handle:
        return ""
    belongs = kind_of(handle)
    return f"; {handle!r} belongs to {OWNERS[belongs].words} (--{belongs})"


def _try(belongs: Strategy | None) -> str:
    return f"--{belongs} --from HANDLE" if belongs else "convo chat --help"
